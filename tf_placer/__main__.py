"""`python -m tf_placer`."""

from tf_placer.cli import main

main()
