"""The entry point of `python -m tf_placer`."""

import sys

try:
    from tf_placer.cli.main import main
except KeyboardInterrupt:  # The import takes long enough to be interrupted.
    sys.exit("tf_placer: interrupted")

main()
