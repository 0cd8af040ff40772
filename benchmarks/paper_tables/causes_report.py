"""The page of causes: ratios to the printed one GPU or expert, and orders of methods."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

from benchmarks.harness.found_steps import seconds
from benchmarks.paper_tables.published_tables import Column, PaperTable, Row
from tf_placer.text.markdown import markdown_table

__all__ = ["CauseStep", "RowOrder", "causes_page", "compare_order"]

# Printed times that differ by less are in no order: papers measured within 2 %, on machines of
# clouds, and the partitioners' ranks change between two and four GPUs by less.
_LEAST_DIFFERENCE = 1.1
# The sets of causes whose orders are compared: the first, the last but one and the last of a row.
_TITLES = ("none", "all but sums", "all")


@dataclasses.dataclass(frozen=True)
class CauseStep:
    """A simulated step.

    Attributes:
        table: the name of the table.
        row: the number of the row in the table.
        method: the title of the column.
        causes: the names of the causes that it is simulated with.
        secs: the step's seconds.
        fits: whether it fits into memory.
    """

    table: str
    row: int
    method: str
    causes: tuple[str, ...]
    secs: float
    fits: bool


@dataclasses.dataclass(frozen=True)
class RowOrder:
    """The order of the methods of a row, as printed and as simulated.

    Attributes:
        num_pairs: the pairs of methods whose printed times differ enough.
        wrong: the pairs of these that are simulated in the other order, the printed faster one
            first.
    """

    num_pairs: int
    wrong: tuple[tuple[str, str], ...]


def compare_order(printed: Mapping[str, float], simulated: Mapping[str, float]) -> RowOrder:
    """Compares the order of methods.

    Args:
        printed: the seconds of each method that the paper prints a time for.
        simulated: the seconds of at least these methods.
    """
    pairs = [
        (fast, slow)
        for fast, slow in itertools.permutations(printed, 2)
        if printed[slow] >= _LEAST_DIFFERENCE * printed[fast]
    ]
    wrong = tuple(pair for pair in pairs if simulated[pair[0]] >= simulated[pair[1]])
    return RowOrder(len(pairs), wrong)


def causes_page(
    tables: Sequence[PaperTable],
    list_columns: Callable[[PaperTable], Sequence[Column]],
    causes: Sequence[tuple[str, str]],
    steps: Sequence[CauseStep],
) -> str:
    """Formats the page.

    Args:
        tables: the tables of the papers.
        list_columns: lists the columns of a table that are simulated.
        causes: the name of each cause, and what it is.
        steps: all simulated steps.
    """
    secs = {(s.table, s.row, s.method, s.causes): s for s in steps}
    parts = [
        "# Causes",
        "Simulated steps of the papers' baselines, beside the printed ones. `none` has the default "
        "machine, `all` the machine of its time; between them is each cause alone:",
        "\n".join(f"- `{name}`: {title}" for name, title in causes),
        _describe_orders(tables, list_columns, secs),
    ]
    for table in tables:
        parts += [f"## {table.title}", *_format_ratios(table, list_columns(table), secs)]
    return "\n\n".join(part for part in parts if part)


_Steps = Mapping[tuple[str, int, str, tuple[str, ...]], CauseStep]


def _list_variants(table: PaperTable, number: int, steps: _Steps) -> list[tuple[str, ...]]:
    """Lists the sets of causes of a row in their order: none, each, all."""
    return list(dict.fromkeys(key[3] for key in steps if key[:2] == (table.name, number)))


def _find_printed(table: PaperTable, row: Row, columns: Sequence[Column]) -> dict[str, float]:
    printed = {}
    for column in columns:
        found = table.find_published_of(row, column)
        if found is not None and found.value is not None and column.placer_for(row) is not None:
            printed[column.title] = found.value
    return printed


def _describe_orders(
    tables: Sequence[PaperTable],
    list_columns: Callable[[PaperTable], Sequence[Column]],
    steps: _Steps,
) -> str:
    """Formats the table of orders, and the number of rows that are reproduced."""
    lines, count, total = [], dict.fromkeys(_TITLES, 0), 0
    for table in tables:
        columns = list_columns(table)
        for number, row in enumerate(table.rows):
            variants = _list_variants(table, number, steps)
            if not variants:
                continue
            printed = _find_printed(table, row, columns)
            line = [table.title.split(",")[0], row.title, str(row.num_gpus or "")]
            line.append(_format_order(printed))
            orders = {}
            for title, causes in zip(_TITLES, (variants[0], *variants[-2:]), strict=True):
                ours = {m: steps[table.name, number, m, causes].secs for m in printed}
                orders[title] = compare_order(printed, ours)
                if title != _TITLES[1]:
                    line.append(_format_order(ours))
            line += [_format_result(order) for order in orders.values()]
            if orders["all"].num_pairs:
                total += 1
                for title, order in orders.items():
                    count[title] += not order.wrong
            lines.append(line)
    headers = ["paper", "model", "GPUs", "printed", "none", "all"]
    headers += [f"printed order, {title}" for title in _TITLES]
    reproduced = ", ".join(f"{count[title]} with {title}" for title in _TITLES)
    return "\n\n".join(
        [
            "## Orders",
            "Methods from the fastest to the slowest, with their times by that of the fastest. A "
            f"row is reproduced if all methods whose printed times differ by a factor of "
            f"{_LEAST_DIFFERENCE:g} or more are in the printed order. What does not fit into "
            "memory here counts with the time that it would take.",
            markdown_table(headers, lines, "llrllllll"),
            f"Reproduced, of {total} rows: {reproduced}.",
        ]
    )


def _format_order(secs: Mapping[str, float]) -> str:
    least = min(secs.values(), default=0.0)
    ordered = sorted(secs, key=lambda method: secs[method])
    return " < ".join(f"{method} {secs[method] / least:.2f}" for method in ordered)


def _format_result(order: RowOrder) -> str:
    if not order.num_pairs:
        return "no order printed"
    if not order.wrong:
        return "yes"
    wrong = ", ".join(f"{fast} before {slow}" for fast, slow in order.wrong)
    return f"no, {len(order.wrong)} of {order.num_pairs} pairs: not {wrong}"


def _format_ratios(table: PaperTable, columns: Sequence[Column], steps: _Steps) -> list[str]:
    """Formats, for each row and method, the ratio to the reference with each set of causes."""
    names: list[str] = []
    for number in range(len(table.rows)):
        for causes in _list_variants(table, number, steps)[1:-2]:
            names += [name for name in causes if name not in names]
    lines = []
    for number, row in enumerate(table.rows):
        variants = _list_variants(table, number, steps)
        if not variants:
            continue
        printed = _find_printed(table, row, columns)
        simulated = [c for c in columns if (table.name, number, c.title, ()) in steps]
        reference = _find_reference(printed, simulated)
        by_title = {"none": variants[0], "all": variants[-1]}
        by_title |= {causes[0]: causes for causes in variants[1:-2]}
        for column in simulated:
            method = column.title
            line = [row.title, str(row.num_gpus or ""), method]
            base = printed.get(reference)
            line.append(f"{printed[method] / base:.2f}" if base and method in printed else "")
            if not line[-1] and table.find_published_of(row, column) is not None:
                line[-1] = "OOM"
            for title in ("none", *names, "all"):
                if title not in by_title:
                    line.append("")
                    continue
                variant = by_title[title]
                step = steps[table.name, number, method, variant]
                ratio = step.secs / steps[table.name, number, reference, variant].secs
                line.append(f"{ratio:.2f}{'' if step.fits else ' †'}")
            line.append(f"{printed[method]:g}" if method in printed else "")
            line.append(seconds(steps[table.name, number, method, variants[-1]].secs))
            lines.append(line)
    headers = ["model", "GPUs", "method", "printed", "none", *names, "all", "printed, s", "all, s"]
    return [
        "Times by that of one GPU, or of the expert where the paper prints no time for one GPU. "
        "†: does not fit into memory here. Behind them the seconds, as printed and with `all`.",
        markdown_table(headers, lines, "lrl" + "r" * (len(headers) - 3)),
    ]


def _find_reference(printed: Mapping[str, float], columns: Sequence[Column]) -> str:
    """Finds the method that others are compared with: one GPU, if it has a printed time."""
    titles = [column.title for column in columns]
    preferred = [title for title in titles if "GPU" in title and title in printed]
    return next(iter([*preferred, *(title for title in titles if "Expert" in title), *titles]))
