"""Pictures of the tables of the papers."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence

from benchmarks.harness.pictures import save_picture
from benchmarks.paper_tables.published_tables import PaperTable
from benchmarks.paper_tables.report import Cell, Cells, bound_secs

__all__ = ["plot_table"]


def plot_table(path: pathlib.Path, table: PaperTable, cells: Cells) -> None:
    """Draws a table: above what was published, below ours; without matplotlib, nothing.

    Args:
        path: where to.
        table: which table.
        cells: for each row, the cell by the title of the column.
    """
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    sides: Sequence[tuple[str, Callable[[Cell], float | None], Callable[[Cell], bool]]] = (
        ("published", lambda cell: cell.published_secs, _is_published_out_of_memory),
        ("ours, simulated", lambda cell: cell.best_secs, _is_out_of_memory),
    )
    figure, panels = pyplot.subplots(
        2, 1, figsize=(max(7.0, 1.3 * len(table.rows) + 2), 7), constrained_layout=True
    )
    width = 0.85 / len(table.columns)
    for axes, (side, value_of, is_out_of_memory) in zip(panels, sides, strict=True):
        axes.set_yscale("log")
        for number, column in enumerate(table.columns):
            positions = [index - 0.425 + width * (number + 0.5) for index in range(len(cells))]
            values = [value_of(of_row[column.title]) for of_row in cells]
            shown = [(x, y) for x, y in zip(positions, values, strict=True) if y is not None]
            axes.bar(
                [x for x, _ in shown],
                [y for _, y in shown],
                width,
                color=f"C{number}",
                label=column.title,
            )
            for x, of_row in zip(positions, cells, strict=True):
                if is_out_of_memory(of_row[column.title]):
                    axes.text(
                        x, 0.02, "OOM", rotation=90, color=f"C{number}", ha="center",
                        va="bottom", fontsize="x-small", transform=axes.get_xaxis_transform(),
                    )  # fmt: skip
        if side != "published":
            for index, of_row in enumerate(cells):
                bound = bound_secs(of_row.values())
                if bound:
                    label = None if index else "lower bound"
                    axes.hlines(bound, index - 0.45, index + 0.45, "black", "dotted", label=label)
        axes.set_xticks(
            range(len(cells)), [f"{row.title}\n{row.machine}" for row in table.rows], fontsize=8
        )
        axes.set_ylabel("s per step")
        axes.set_title(side, fontsize="medium")
    panels[1].legend(fontsize="x-small", ncols=4)
    figure.suptitle(table.title)
    save_picture(figure, path)
    pyplot.close(figure)


def _is_published_out_of_memory(cell: Cell) -> bool:
    return cell.published is not None and cell.published.out_of_memory


def _is_out_of_memory(cell: Cell) -> bool:
    return cell.state == "out of memory"
