"""The problems on which something was trained or chosen, which it then does well on."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

import tf_placer
from benchmarks.comparison.readings import PROBLEMS, REPAIR_PROBLEMS
from tf_placer.files import read_json

__all__ = ["describe_seen", "find_trained_problems"]

_SHIPPED = pathlib.Path(tf_placer.__file__).parent / "placers/learned/data/graph_neural.json"
_GRANULARITY = "-coarse"


def find_trained_problems(problems: Iterable[str]) -> list[str]:
    """Selects the problems that the shipped weights of `graph_neural` were trained on.

    Args:
        problems: as in "nmt_2:4xK80".
    """
    files = (pathlib.PurePath(path) for path in read_json(_SHIPPED)["problems"])
    trained = {file.parent.name.removesuffix(_GRANULARITY) for file in files}
    return [problem for problem in problems if problem.replace(":", "-") in trained]


def describe_seen(problems: Iterable[str], *, graph_neural: bool) -> str:
    """Says on which of the problems of a page settings were chosen and weights trained.

    Args:
        problems: as in "nmt_2:4xK80".
        graph_neural: whether the page has a placer with the shipped weights.
    """
    problems = list(dict.fromkeys(problems))
    chosen = _list([each for each in problems if each in PROBLEMS])
    counted = _list([each for each in problems if each in REPAIR_PROBLEMS])
    parts = [
        f"The settings of the variants were chosen on {chosen} of these problems; how failures "
        f"count since, on {counted}."
    ]
    if graph_neural:
        trained = find_trained_problems(problems)
        parts.append(
            f"The shipped weights of graph_neural have seen {len(trained)} of these "
            f"{len(problems)} problems, all but {_list(set(problems) - set(trained))}."
        )
    return " ".join(parts)


def _list(problems: Iterable[str]) -> str:
    return ", ".join(sorted(each.partition(":")[0] for each in problems)) or "none"
