"""Tables of text in columns."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from graph_passes.util.messages import plain_text

__all__ = ["table", "terminal_width"]

_GAP = 2
_MIN_PROSE_WIDTH = 30


def terminal_width() -> int | None:
    """Returns the width of the terminal in characters; None if the output is no terminal."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_terminal else None


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    alignment: str = "",
    *,
    width: int | None = None,
    optional: Sequence[str] = (),
) -> str:
    """Formats a table as lines of text, without a final newline.

    Args:
        headers: the header of each column.
        rows: the cells, formatted with `str`; None is an empty cell.
        alignment: "l" or "r" for each column; by default all are left-aligned.
        width: characters of a line. Long cells of left-aligned columns are wrapped to fit, if
            possible. None for lines of any length.
        optional: headers of columns to leave out where lines are too short, the least important
            first; a last line names them.

    Raises:
        ValueError: a row or the alignment does not fit the headers.

    Example:
        >>> print(table(["placer", "trials"], [["random", 7], ["colocrl", 120]], "lr"))
        placer   trials
        -------  ------
        random        7
        colocrl     120
    """
    alignment = alignment or "l" * len(headers)
    if len(alignment) != len(headers) or set(alignment) - set("lr"):
        raise ValueError(f"alignment {alignment!r} is not an l or r for each of {list(headers)}")
    lines = [list(headers)]
    for row in rows:
        if len(row) != len(headers):
            raise ValueError(f"row {list(row)} has not one cell for each of {list(headers)}")
        lines.append(["" if cell is None else plain_text(str(cell)) for cell in row])
    left_out: list[str] = []
    if width is not None:
        left_out = _choose_hidden_columns(lines, alignment, width, optional)
        kept = [column for column, name in enumerate(headers) if name not in left_out]
        lines = [[line[column] for column in kept] for line in lines]
        alignment = "".join(alignment[column] for column in kept)
    widths, num_header = _widths(lines), 1
    if width is not None:
        widths = _narrow_columns(lines, alignment, width)
        num_header = len(_wrap_cells(lines[0], widths))
        lines = [part for line in lines for part in _wrap_cells(line, widths)]
    lines.insert(num_header, ["-" * size for size in widths])
    sides = [str.rjust if side == "r" else str.ljust for side in alignment]
    text = "\n".join(
        (" " * _GAP)
        .join(pad(cell, size) for pad, cell, size in zip(sides, line, widths, strict=True))
        .rstrip()
        for line in lines
    )
    return f"{text}\nno room here for: {', '.join(left_out)}" if left_out else text


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _least_widths(lines: Sequence[Sequence[str]], alignment: str) -> list[int]:
    """Computes the least widths of the columns: only long text is wrapped."""
    return [
        min(size, _MIN_PROSE_WIDTH) if side == "l" else size
        for size, side in zip(_widths(lines), alignment, strict=True)
    ]


def _choose_hidden_columns(
    lines: Sequence[Sequence[str]], alignment: str, width: int, optional: Sequence[str]
) -> list[str]:
    """Chooses the columns that do not fit, by their headers."""
    sizes = dict(zip(lines[0], _least_widths(lines, alignment), strict=True))
    left_out = []
    for name in optional:
        if sum(sizes.values()) + _GAP * (len(sizes) - 1) <= width:
            break
        del sizes[name]
        left_out.append(name)
    return left_out


def _narrow_columns(lines: Sequence[Sequence[str]], alignment: str, width: int) -> list[int]:
    """Narrows the widest columns of text until a line fits, but none below its longest word."""
    widths = _widths(lines)
    words = [
        max((len(word) for cell in column for word in cell.split()), default=0)
        for column in zip(*lines, strict=True)
    ]
    least = [
        min(size, _MIN_PROSE_WIDTH, max(word, 1)) if side == "l" else size
        for size, word, side in zip(widths, words, alignment, strict=True)
    ]
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    while excess > 0:
        wide = [column for column, size in enumerate(widths) if size > least[column]]
        if not wide:
            break
        widths[max(wide, key=lambda column: widths[column])] -= 1
        excess -= 1
    return widths


def _wrap_cells(line: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """Wraps the cells of a row into lines of the given widths."""
    cells = [
        [cell] if len(cell) <= size else textwrap.wrap(cell, size)
        for cell, size in zip(line, widths, strict=True)
    ]
    height = max(map(len, cells), default=1)
    return [[cell[part] if part < len(cell) else "" for cell in cells] for part in range(height)]
