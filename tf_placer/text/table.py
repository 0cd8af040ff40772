"""Tables of fixed width."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

__all__ = ["table", "terminal_width"]

_GAP = 2
# A column that text is wrapped in is at least so wide.
_LEAST_WIDTH = 12


def terminal_width() -> int | None:
    """Finds how many characters a line of the terminal has; None where output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    alignment: str = "",
    *,
    width: int | None = None,
) -> str:
    """Formats a table as lines of text, without a final newline.

    Args:
        headers: one per column.
        rows: the cells, shown by `str`; None is an empty cell.
        alignment: "l" or "r" for each column; by default all are left-aligned.
        width: characters of a line. Cells of left-aligned columns are wrapped to that, as far as
            this is possible. None for lines of any length.

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
        lines.append(["" if cell is None else str(cell) for cell in row])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if width is not None:
        widths = _narrowed(widths, alignment, width)
        lines = [part for line in lines for part in _wrapped(line, widths)]
    # A header may take several lines.
    num_header = len(_wrapped(headers, widths)) if width is not None else 1
    lines.insert(num_header, ["-" * size for size in widths])
    sides = [str.rjust if side == "r" else str.ljust for side in alignment]
    return "\n".join(
        (" " * _GAP)
        .join(pad(cell, size) for pad, cell, size in zip(sides, line, widths, strict=True))
        .rstrip()
        for line in lines
    )


def _narrowed(widths: Sequence[int], alignment: str, width: int) -> list[int]:
    """Takes from the widest left-aligned columns what is too much."""
    narrowed = list(widths)
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    while excess > 0:
        wide = [
            column
            for column, side in enumerate(alignment)
            if side == "l" and narrowed[column] > _LEAST_WIDTH
        ]
        if not wide:
            break
        narrowed[max(wide, key=lambda column: narrowed[column])] -= 1
        excess -= 1
    return narrowed


def _wrapped(line: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """Breaks the cells of a line into as many lines as the longest of them takes."""
    cells = [
        [cell] if len(cell) <= size else textwrap.wrap(cell, size)
        for cell, size in zip(line, widths, strict=True)
    ]
    height = max(map(len, cells), default=1)
    return [[cell[part] if part < len(cell) else "" for cell in cells] for part in range(height)]
