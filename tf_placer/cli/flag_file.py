"""Files of arguments, by the conventions of absl's --flagfile."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["FLAG", "with_flag_files"]

#: The argument that names one.
FLAG = "--flagfile"
_COMMENTS = ("#", "//")


def with_flag_files(argv: Sequence[str], within: tuple[str, ...] = ()) -> list[str]:
    """Replaces each --flagfile=FILE by the lines of the file, each of which is one argument.

    Blank lines and those that begin with # or // count for nothing. A file may name others. Of an
    argument that is given twice, the later counts: on the command line behind the file, say.

    Args:
        argv: arguments.
        within: the files that these are in.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not text, or names itself, or no file is named.
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
        if path in within:
            raise ValueError(f"{path} names itself by {FLAG}")
        expanded += with_flag_files(_read(path), (*within, path))
    return expanded


def _read(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a file of arguments: {error}") from None
    return [line for line in lines if line and not line.startswith(_COMMENTS)]
