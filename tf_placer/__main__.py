"""`python -m tf_placer`."""

import sys

try:
    from tf_placer.cli.main import main
except KeyboardInterrupt:  # Importing takes a moment.
    sys.exit("tf_placer: interrupted")

main()
