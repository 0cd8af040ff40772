"""How long searches take until a placement of a given quality is found, measured and on paper.

Known are the samples that one process needs, and a few controllers, or a batch in step that is as
large as the workers are many; each is the median of the seeds. The time on paper is that of the two
phases (`planning`) for so many samples.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.distributed.planning import Plan, plan, samples_between, slowest_share
from benchmarks.distributed.runs import found, learn_secs, of_case
from tf_placer.text.markdown import markdown_table

__all__ = ["GOAL_SECS", "Form", "goal_table", "median_found"]

Run = Mapping[str, Any]
#: A step that is reached by most seeds of all forms; the original takes 97 ms.
GOAL_SECS = 0.025
_WORKERS = (1, 12, 16, 48, 96, 160)


@dataclasses.dataclass(frozen=True)
class Form:
    """A way to search with several workers, and the same with one.

    Attributes:
        name: of the searches with several.
        base: of those with one.
        rate: which parameter server there is; empty for none.
    """

    name: str
    base: str
    rate: str = ""


_FORMS = (
    Form(
        "ColocRL, 4 controllers of 4", "ColocRL, one process", rate="ColocRL, 32 units, batch of 4"
    ),
    Form("Post, 12 workers in step", "Post, one process"),
)


def median_found(runs: Sequence[Run], goal_secs: float) -> tuple[float, float]:
    """Finds after how many samples and seconds a step was so fast, each the median of the seeds.

    A seed by which it never was needs infinitely many.
    """
    ends = [found(run, goal_secs) or (math.inf, math.inf) for run in runs]
    return statistics.median(each[0] for each in ends), statistics.median(each[1] for each in ends)


def goal_table(runs: Sequence[Run], rates: Mapping[str, Mapping[str, float]]) -> str:
    """Makes the table of times to the goal with 1 to 160 workers.

    Args:
        runs: as `run_case` gives them.
        rates: of parameter servers; see `server_rate`.
    """
    forms = [
        form
        for form in _FORMS
        if of_case(runs, form.name)
        and of_case(runs, form.base)
        and (not form.rate or form.rate in rates)
        and math.isfinite(median_found(of_case(runs, form.name), GOAL_SECS)[0])
        and math.isfinite(median_found(of_case(runs, form.base), GOAL_SECS)[0])
    ]
    if not forms:
        return ""
    rows = []
    for workers in _WORKERS:
        cells = [_cells(form, runs, rates, workers) for form in forms]
        if any(any(each) for each in cells):
            rows.append([str(workers), *(cell for each in cells for cell in each)])
    head = [
        f"{form.name.split(',')[0]}, {what}"
        for form in forms
        for what in ("samples", "on paper", "measured")
    ]
    return markdown_table(["workers", *head], rows)


def _cells(
    form: Form, runs: Sequence[Run], rates: Mapping[str, Mapping[str, float]], workers: int
) -> list[str]:
    """Says samples and time to the goal, on paper and as measured where it was; all else empty."""
    many, base = of_case(runs, form.name), of_case(runs, form.base)
    one, one_secs = median_found(base, GOAL_SECS)
    few, few_secs = median_found(many, GOAL_SECS)
    num_workers, size = many[0]["workers"], many[0]["batch_size"]
    is_in_step = not form.rate
    # In step, a batch is as large as the workers are many, once they are more than its size.
    batch_size = max(size, workers) if is_in_step else size
    if workers > 1 and workers % batch_size:
        return ["", "", ""]
    parts = workers / size if workers > 1 else 0
    samples = samples_between(parts, one, few, num_workers / size)
    apply_secs = rates[form.rate]["apply_secs"] if form.rate else 1e-9
    waits = statistics.fmean(map(learn_secs, many if workers > 1 else base))
    taken = _taken(base, batch_size)
    plans = [
        plan(workers, batch_size, each, learn_secs=waits, apply_secs=apply_secs, **taken)
        for each in samples
    ]
    measured = {1: one_secs, num_workers: few_secs}.get(workers)
    return [
        _span([f"{each:.0f}" for each in samples]),
        _span([_minutes(each) for each in plans]) + " min",
        "" if measured is None else f"{measured / 60.0:.1f} min",
    ]


def _taken(runs: Sequence[Run], batch_size: int) -> dict[str, float]:
    """Finds what trials take until the goal, those included that were measured before."""
    took = []
    for run in runs:
        end = found(run, GOAL_SECS)
        took += [each for _, each, *_ in run["trials"][: end[0] if end else None]]
    return {"trial_secs": statistics.fmean(took), "slowest": slowest_share(took, batch_size)}


def _minutes(each: Plan) -> str:
    return f"{each.wall_secs / 60.0:.1f}"


def _span(values: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys(values))
