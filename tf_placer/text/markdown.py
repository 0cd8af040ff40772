"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from graph_passes.util.messages import plain_text

__all__ = ["markdown_table"]


def markdown_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], alignment: str = ""
) -> str:
    """Formats a table as lines of Markdown, without a final newline.

    Args:
        headers: the header of each column.
        rows: the cells.
        alignment: "l" or "r" for each column; by default all are left-aligned.

    Raises:
        ValueError: a row or the alignment does not fit the headers.

    Example:
        >>> print(markdown_table(["placer", "trials"], [["random", "7"]], "lr"))
        | placer | trials |
        | --- | ---: |
        | random | 7 |
    """
    alignment = alignment or "l" * len(headers)
    if len(alignment) != len(headers) or set(alignment) - set("lr"):
        raise ValueError(f"alignment {alignment!r} is not an l or r for each of {list(headers)}")
    lines = [list(headers), ["---:" if side == "r" else "---" for side in alignment]]
    for row in rows:
        if len(row) != len(headers):
            raise ValueError(f"row {list(row)} has not one cell for each of {list(headers)}")
        # An unescaped bar would end the cell.
        lines.append([plain_text(cell.replace("\n", " ")).replace("|", "\\|") for cell in row])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
