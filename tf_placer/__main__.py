"""The entry point of `python -m tf_placer`, and of the console script."""

import sys

__all__ = ["run"]


def run() -> None:
    """Runs the command line; an interrupt while it is imported is one line, too."""
    try:
        from tf_placer.cli.main import main
    except KeyboardInterrupt:  # The import takes long enough to be interrupted.
        sys.exit("tf_placer: interrupted")
    main()


if __name__ == "__main__":
    run()
