"""Tables of fixed width."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["table"]


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], alignment: str = "") -> str:
    """Formats a table as lines of text, without a final newline.

    Args:
        headers: one per column.
        rows: the cells, shown by `str`; None is an empty cell.
        alignment: "l" or "r" for each column; by default all are left-aligned.

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
    lines.insert(1, ["-" * width for width in widths])
    sides = [str.rjust if side == "r" else str.ljust for side in alignment]
    return "\n".join(
        "  ".join(
            pad(cell, width) for pad, cell, width in zip(sides, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )
