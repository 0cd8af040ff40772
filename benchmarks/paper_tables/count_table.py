"""ColocRL's table 1, how many operations and groups the models have, beside ours."""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Callable

from benchmarks.harness.pictures import save_picture
from benchmarks.paper_tables.published import COLOCRL, find_published
from benchmarks.paper_tables.published_tables import COUNT_ROWS, COUNT_TABLE
from benchmarks.problems.paper import ProblemKey, make_problems, read_paper_problem
from tf_placer.text.markdown import markdown_table

__all__ = ["write_count_table"]

_MACHINE = "4xK80"
_HEADERS = (
    "model",
    "operations, paper",
    "operations, ours",
    "of them in a step",
    "groups, paper",
    "groups, ours",
)
_NOTE = (
    "The paper counts the operations of graphs that its TensorFlow of 2016 built; ours are of the "
    "same networks, unrolled, with their gradients and optimisers, but of other code. Its groups "
    "do not follow from the rules that it prints. `benchmarks.paper_tables.model_table` says more "
    "about each model."
)


def write_count_table(
    out: pathlib.Path,
    problems_dir: pathlib.Path,
    small: bool,
    footer: str,
    *,
    report: Callable[[str], None] = print,
) -> str:
    """Writes the table as Markdown, CSV and picture.

    Args:
        out: where to.
        problems_dir: where problems are, or go.
        small: whether the models have their small size.
        footer: what made it.
        report: is told what is made.

    Returns:
        The page.

    Raises:
        OSError: something cannot be written.
    """
    keys = [ProblemKey(model, _MACHINE, small=small) for _, model in COUNT_ROWS]
    failures = make_problems(keys, problems_dir, report=report)
    rows: list[list[str]] = []
    for (title, model), key in zip(COUNT_ROWS, keys, strict=True):
        operations, groups = (
            find_published(COLOCRL, "Table 1", title, method, metric=metric)
            for method, metric in (
                ("graph", "num_operations"),
                ("co-location groups", "num_groups"),
            )
        )
        assert operations is not None and groups is not None
        if model in failures:
            ours = ["failed"] * 3
        else:
            problem = read_paper_problem(key, problems_dir)
            counts = (
                problem.num_graph_operations,
                problem.problem.num_operations,
                problem.groups.num_groups,
            )
            ours = [str(count) for count in counts]
        rows.append(
            [title, f"{operations.value:g}", ours[0], ours[1], f"{groups.value:g}", ours[2]]
        )
    with open(out / f"{COUNT_TABLE}.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([_HEADERS, *rows])
    _plot(out / f"{COUNT_TABLE}.png", rows)
    page = "\n\n".join(
        [
            "# ColocRL, table 1: operations and groups",
            _NOTE,
            markdown_table(_HEADERS, rows, "lrrrrr"),
            *failures.values(),
            footer,
        ]
    )
    (out / f"{COUNT_TABLE}.md").write_text(page + "\n", encoding="utf-8")
    return page


def _plot(path: pathlib.Path, rows: list[list[str]]) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.5), constrained_layout=True)
    for axes, name, first, second in zip(
        panels, ("operations", "groups"), (1, 4), (2, 5), strict=True
    ):
        for offset, column, label in ((-0.2, first, "paper"), (0.2, second, "ours")):
            heights = [float(row[column]) if row[column].isdecimal() else 0.0 for row in rows]
            axes.bar([index + offset for index in range(len(rows))], heights, 0.4, label=label)
        axes.set_xticks(range(len(rows)), [row[0] for row in rows])
        axes.set_title(name, fontsize="medium")
        axes.legend(fontsize="small")
    save_picture(figure, path)
    pyplot.close(figure)
