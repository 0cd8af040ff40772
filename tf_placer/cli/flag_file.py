"""Files of arguments, with the conventions of absl's --flagfile."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["FLAG", "expand_flag_files"]

#: The argument that names a file of arguments.
FLAG = "--flagfile"
_COMMENTS = ("#", "//")


def expand_flag_files(argv: Sequence[str], outer: tuple[str, ...] = ()) -> list[str]:
    """Replaces each --flagfile=FILE by the lines of the file, each of which is one argument.

    Blank lines and lines that begin with # or // are ignored. A file may name others. The later one
    of two values of an argument counts, such as one on the command line after the file.

    Args:
        argv: the arguments.
        outer: the files that contain these arguments, outermost first.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not text, or names itself, or the name of a file is missing.
    """
    expanded: list[str] = []
    rest = iter(argv)
    for argument in rest:
        name, equals, path = argument.partition("=")
        if name != FLAG:
            expanded.append(argument)
            continue
        path = path if equals else next(rest, "")
        if not path:
            raise ValueError(f"{FLAG} needs the name of a file")
        if path in outer:
            raise ValueError(f"{path} names itself by {FLAG}")
        expanded += expand_flag_files(_read_arguments(path), (*outer, path))
    return expanded


def _read_arguments(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a file of arguments: {error}") from None
    return [line for line in lines if line and not line.startswith(_COMMENTS)]
