"""The tables of the papers with ours beside what was published."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from benchmarks.harness.found_steps import best_secs, seconds, step_text
from benchmarks.harness.placement_runs import Run
from benchmarks.harness.run_counts import explain_counts, format_commits, format_counts
from benchmarks.paper_tables.published import Published
from benchmarks.paper_tables.published_tables import Column, Gain, PaperTable, Row
from tf_placer.text.markdown import markdown_table

__all__ = ["Cell", "table_cells", "table_markdown"]

_OUT_OF_MEMORY = "OOM"


@dataclasses.dataclass(frozen=True)
class Cell:
    """A published value and its counterpart here.

    Attributes:
        published: what was printed; None if nothing was.
        runs: of the placer, one per seed.
    """

    published: Published | None
    runs: tuple[Run, ...]

    @property
    def best_secs(self) -> float | None:
        """The fastest step of all seeds; None if there is none."""
        return best_secs(self.runs)

    @property
    def published_secs(self) -> float | None:
        """The printed step; None if nothing was printed or it was out of memory."""
        return None if self.published is None else self.published.value

    @property
    def cut_samples(self) -> int | None:
        """Samples after which time ended the shortest of the runs; None if it ended none."""
        cut = [r.found.samples for r in self.runs if r.found and r.found.ended == "secs"]
        return min(cut, default=None)

    def text(self) -> str:
        """Ours, and what was published in brackets: "0.895 (1.57)"."""
        ours = step_text(self.runs)
        if self.cut_samples is not None:
            ours += " †"
        return ours if self.published is None else f"{ours} ({_format_published(self.published)})"


Cells = Sequence[Mapping[str, Cell]]
"""For each row of a table, the cell by the title of the column."""


def table_cells(
    table: PaperTable, runs_of: Callable[[Row, Column], Sequence[Run]]
) -> list[dict[str, Cell]]:
    """Collects all cells of a table.

    Args:
        table: which table.
        runs_of: gives the runs of a row and a column, one per seed.

    Returns:
        For each row, the cell by the title of the column.
    """
    return [
        {
            column.title: Cell(table.find_published_of(row, column), tuple(runs_of(row, column)))
            for column in table.columns
        }
        for row in table.rows
    ]


def table_markdown(table: PaperTable, cells: Cells) -> str:
    """Formats a page with the table.

    Args:
        table: which table.
        cells: for each row, the cell by the title of the column.
    """
    headers = ["model", "GPUs", *(column.title for column in table.columns)]
    headers += ["fastest baseline", "lower bound", "fastest / bound"]
    if table.gain:
        headers.append(table.gain.title)
    lines = []
    for row, of_row in zip(table.rows, cells, strict=True):
        fastest_secs = _fastest(of_row.values())
        line = [row.title, _gpus(row)]
        for cell in of_row.values():
            text = cell.text()
            if cell.best_secs is not None and cell.best_secs == fastest_secs:
                text = text.replace(seconds(fastest_secs), f"**{seconds(fastest_secs)}**", 1)
            line.append(text)
        bound = _find_bound_secs(of_row.values())
        ratio = None if fastest_secs is None or not bound else fastest_secs / bound
        line.append(_fastest_baseline(table, of_row))
        line.append("" if bound is None else seconds(bound))
        line.append("" if ratio is None else f"{ratio:.2f}")
        if table.gain:
            line.append(_gain_text(table.gain, of_row))
        lines.append(line)
    runs = [run for of_row in cells for cell in of_row.values() for run in cell.runs]
    alignment = "lr" + "r" * len(table.columns) + "lrr" + "r" * (table.gain is not None)
    parts = [
        f"# {table.title}",
        "Ours, simulated, and what the paper printed (in brackets), in seconds per step; the "
        "fastest of ours is bold. The paper measured on its machine, so compare the methods of one "
        "row, not the seconds. Learned methods have what their paper prints and our first reading "
        "of what it does not; “now”: the variants that are the default here. OOM: nothing that was "
        "tried fitted into memory. †: time ended the search before its samples did.",
        *([table.note] if table.note else []),
        markdown_table(headers, lines, alignment),
        f"{explain_counts(runs)} Each cell has {_format_seeds(cells)}.",
        _counts(table, cells),
        *_remarks(table, cells),
        format_commits(runs),
    ]
    return "\n\n".join(parts)


def _format_seeds(cells: Cells) -> str:
    counts = sorted({len(cell.runs) for of_row in cells for cell in of_row.values() if cell.runs})
    text = " to ".join(dict.fromkeys(map(str, [counts[0], counts[-1]]))) if counts else "no"
    return f"{text} seed" if text == "1" else f"{text} seeds"


def _counts(table: PaperTable, cells: Cells) -> str:
    """Formats samples and failures of the methods that are no baselines."""
    titles = [column.title for column in table.columns if not column.is_baseline]
    lines = [
        [row.title, _gpus(row), *(format_counts(of_row[title].runs) for title in titles)]
        for row, of_row in zip(table.rows, cells, strict=True)
    ]
    return markdown_table(["model", "GPUs", *titles], lines, "lr" + "r" * len(titles))


def _find_bound_secs(cells: Iterable[Cell]) -> float | None:
    """Finds the lower bound of some cells, the least of several; None if none is known.

    The bounds of one model differ because finer groups can be placed better.
    """
    bounds = [run.lower_bound_secs for cell in cells for run in cell.runs]
    return min((secs for secs in bounds if secs is not None), default=None)


def _format_published(published: Published) -> str:
    return _OUT_OF_MEMORY if published.value is None else f"{published.value:g}"


def _gpus(row: Row) -> str:
    return row.machine if row.num_gpus is None else str(row.num_gpus)


def _fastest(cells: Iterable[Cell]) -> float | None:
    found = [cell.best_secs for cell in cells]
    return min((secs for secs in found if secs is not None), default=None)


def _fastest_baseline(table: PaperTable, of_row: Mapping[str, Cell]) -> str:
    found = [
        (secs, column.title)
        for column in table.columns
        if column.is_baseline and (secs := of_row[column.title].best_secs) is not None
    ]
    if not found:
        return "none fits"
    secs, title = min(found)
    return f"{title} {seconds(secs)}"


def _gain_text(gain: Gain, of_row: Mapping[str, Cell]) -> str:
    """Ours, and what follows from the printed times in brackets."""

    def percent(secs_of: Callable[[Cell], float | None]) -> str:
        new = secs_of(of_row[gain.method])
        others = [secs for title in gain.over if (secs := secs_of(of_row[title])) is not None]
        if new is None or not others:
            return "-"
        ratio = 1 - new / min(others) if gain.is_reduction else min(others) / new - 1
        return f"{ratio:.1%}"

    return f"{percent(lambda cell: cell.best_secs)} ({percent(lambda cell: cell.published_secs)})"


def _remarks(table: PaperTable, cells: Cells) -> list[str]:
    """Formats what was cut by time and what failed, as lists."""
    cut, failed = [], []
    for row, of_row in zip(table.rows, cells, strict=True):
        for title, cell in of_row.items():
            where = f"{title}, {row.title} on {row.machine}"
            if cell.cut_samples is not None:
                wanted = cell.runs[0].budget.max_samples
                of = "" if wanted is None else f" of {wanted}"
                cut.append(f"- {where}: after {cell.cut_samples}{of} samples")
            failed += [f"- {where}: {run.failure}" for run in cell.runs if run.failure]
    remarks = []
    if cut:
        remarks.append("\n".join(["Ended by time:", "", *cut]))
    if failed:
        remarks.append("\n".join(["Failed:", "", *failed]))
    return remarks
