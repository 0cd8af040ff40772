"""The command `emulate`: runs a program whose TensorFlow has the GPUs of an emulated machine."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys

from tf_placer import emulated
from tf_placer.cli.answer import print_output
from tf_placer.errors import require_tensorflow
from tf_placer.machines.emulated_machine import PREFIX
from tf_placer.machines.lookup import find_machine

__all__ = ["DESCRIPTION", "TAKES_COMMAND", "add_arguments", "run"]

#: The words after "--" are a command with its own arguments, in `args.served`.
TAKES_COMMAND = True
DESCRIPTION = (
    "Runs a command, such as 'emulate 4xK80 -- python train.py', whose TensorFlow has the GPUs of "
    "a machine of the catalog or of a machine file, emulated on the CPU: with their memory, "
    "kernels, copies and times. Without a command, prints the environment variables that set it "
    "up, for eval."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.usage = "%(prog)s [-h] MACHINE [-- COMMAND ARGS...]"
    parser.add_argument(
        "machine",
        metavar="MACHINE",
        help="a name of the catalog ('4xK80') or a machine file; with ',values' appended, all "
        "kernels compute values, and not only those on which control flow may depend; "
        "',slowdown=F' makes everything F times as slow",
    )


def run(args: argparse.Namespace) -> None:
    """Replaces this process by the command, or prints the environment variables.

    Raises:
        MachineError: there is no such machine.
        OSError: there is no such command.
        LibraryError: the plugin cannot be built.
    """
    require_tensorflow()
    machine = find_machine(PREFIX + args.machine.removeprefix(PREFIX))
    environ = emulated.make_environment(machine)
    if not args.served:
        changed = {name: value for name, value in environ.items() if os.environ.get(name) != value}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(changed.items())]
        print_output("\n".join(lines))
        return
    program = shutil.which(args.served[0])
    if program is None:
        raise OSError(f"cannot run {args.served[0]!r}: there is no such command")
    sys.stdout.flush()
    os.execve(program, args.served, environ)
