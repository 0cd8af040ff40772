"""The command `build_pass`: compiles the pass that places graphs of unchanged programs."""

from __future__ import annotations

import argparse

from tf_placer.errors import require_tensorflow

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Compiles, against the TensorFlow that is installed, the pass that places the graphs of a "
    "program whose code stays as it is, and keeps it in ~/.cache/tf_placer (or in "
    "$XDG_CACHE_HOME). It needs a C++ compiler (Debian: apt-get install g++), and is built anew "
    "for another TensorFlow. The pass places the sessions and functions of a process that is "
    "started with TF_PLACER_PLACEMENT=placement.json and has `import tf_placer.native_pass`, by the "
    "names of operations. For sessions on servers the servers do it: start them with "
    "TF_PLACER_PLACEMENT=placement.json python -m tf_placer serve local:N."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes: nothing."""
    del parser


def run(args: argparse.Namespace) -> None:
    """Builds the pass and prints where it is.

    Raises:
        PassError: it cannot be built.
    """
    del args
    require_tensorflow()
    from tf_placer.native_pass.building import build_pass

    print("pass:", build_pass())
