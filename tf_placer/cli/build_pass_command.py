"""The command `build_pass`: compiles the pass that places the graphs of unchanged programs."""

from __future__ import annotations

import argparse

from tf_placer.cli.answer import print_output
from tf_placer.errors import require_tensorflow

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Experimental: 'run' is the supported way to place an unchanged program. "
    "Compiles the pass that places the graphs of such a program by names, against the installed "
    "TensorFlow. It needs a C++ compiler (Debian: apt-get install g++). The pass "
    "is kept in ~/.cache/tf_placer (or in $XDG_CACHE_HOME) for each TensorFlow version. It works "
    "in programs that import tf_placer.native_pass and are started with the environment variable "
    "TF_PLACER_PLACEMENT=placement.json."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds no arguments."""
    del parser


def run(args: argparse.Namespace) -> None:
    """Builds the pass and prints its path.

    Raises:
        LibraryError: the pass cannot be built.
    """
    del args
    require_tensorflow()
    from tf_placer.native_pass.loading import build_pass

    print_output(f"pass: {build_pass()}")
