"""What `optimize` finds live, against the graph as it came, one device and the split by layer.

Four training graphs on `local:2`, each with at most 40 trials and 5 minutes, the confirmation
included: a language model and a translation model, two branches that share nothing, and a
convolutional network, which is nearly a chain. What was found is then measured side by side with
all that it is compared with, in several rounds of fresh processes. Graphs that are done are not
searched again.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import tf_placer
from benchmarks.harness.table_file import write_table
from benchmarks.models import branches, language_model, resnet, small
from benchmarks.models.training_model import TrainingModel
from graph_passes.pipeline import group_operations
from tf_placer.confirmation.confirmation import Confirmation, survey
from tf_placer.environments.session import SessionEnvironment
from tf_placer.files import read_json, write_json
from tf_placer.live.result import OptimizeResult
from tf_placer.placers import granularity_of
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.trial_log import ORIGINAL
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_duration, format_step

__all__ = ["GRAPHS", "graph_row", "main", "measure_again"]

#: What is placed, by name, and how it is built.
GRAPHS: Mapping[str, Callable[[], TrainingModel]] = {
    "language_model": language_model.build,
    "two_branches": branches.build,
    "translation": small.small_translation,
    "resnet": lambda: resnet.build(50, batch=8, image_size=64, classes=10, width=0.5),
}
_MACHINE = "local:2"
_MAX_TRIALS = 40
_ROUNDS = 8
_AGAINST = (ORIGINAL, "single_device", "expert")
_HEADERS = ["graph", "trials", "time", "found", "step"]
_HEADERS += ["to original", "to single device", "to expert"]


def measure_again(result: OptimizeResult) -> Confirmation:
    """Measures what was found side by side with the graph as it came and the best baselines.

    Args:
        result: of an optimisation that has found something.

    Returns:
        What was measured; the reference is what was found.
    """
    assert result.winner is not None and result.log_dir is not None
    directory = RunDirectory(result.log_dir)
    # The graph in memory has the devices by now.
    workload, config = directory.read_request()
    granularity = granularity_of(config.placer, config.placer_options)
    grouped = group_operations(workload.op_graph, granularity)
    devices = tuple(device.name for device in config.found_machine.devices)

    def assign(row: np.ndarray) -> dict[str, str]:
        return grouped.assignment(row, devices)

    candidates: dict[str, Mapping[str, str]] = {}
    for label in dict.fromkeys([result.winner, *_AGAINST]):
        if label in result.finalists:
            row = result.finalists[label].assignment
            candidates[label] = {} if row is None else assign(np.array(row, np.int32))
    with SessionEnvironment(
        directory.graph,
        workload.step,
        config.found_machine,
        assign,
        meta_optimizer=True,
        work_dir=directory.path,
    ) as environment:
        report = functools.partial(print, "again:", flush=True)
        return survey(environment, candidates, result.winner, rounds=_ROUNDS, report=report)


def graph_row(
    name: str, result: OptimizeResult, secs: float, again: Confirmation | None
) -> list[str]:
    """Formats the line of a graph.

    Args:
        name: of the graph.
        result: of its optimisation.
        secs: what that took.
        again: what `measure_again` has measured; None where nothing was found.
    """
    measured = again or result.confirmation
    step_secs = measured.step_secs(result.winner or ORIGINAL) if measured else None
    return [
        name,
        str(len(result.trials)),
        format_duration(secs),
        result.winner or "as it came",
        format_step(step_secs) if step_secs else "-",
        *(_speedup(again, label) for label in _AGAINST),
    ]


def _speedup(again: Confirmation | None, label: str) -> str:
    """Formats the speed-up of what was found, which the comparison has the other way round."""
    comparison = again.comparisons.get(label) if again else None
    if comparison is None or comparison.speedup is None:
        return "-"
    low, high = comparison.interval or (float("nan"), float("nan"))
    return f"{1 / comparison.speedup:.3f}x ({1 / high:.3f} to {1 / low:.3f})"


def _optimized(name: str, directory: pathlib.Path, max_secs: float) -> list[str]:
    """Optimises a graph, or reads the line that came of it earlier."""
    done, searched = directory / "row.json", directory / "searched.json"
    if done.exists():
        row: list[str] = read_json(done)
        return row
    model = GRAPHS[name]()
    start_secs = time.monotonic()
    result = tf_placer.optimize(
        model.graph,
        model.train_op,
        next(model.feeds()),
        model.initializer,
        machine=_MACHINE,
        max_trials=_MAX_TRIALS,
        max_secs=max_secs,
        log_dir=directory,
        seed=0,
    )
    print(f"\n{name}\n{result.table()}\n\n{result.explanation_table()}\n\n{result.reason}\n")
    if not searched.exists():
        # If what follows is broken off, the next call finds the search ended.
        write_json(searched, time.monotonic() - start_secs)
    again = measure_again(result) if result.winner else None
    row = graph_row(name, result, read_json(searched), again)
    write_json(done, row)
    return row


def _page(rows: Sequence[Sequence[str]], max_secs: float) -> str:
    return f"""\
# `auto`, live

What `optimize` with its default placer finds on `{_MACHINE}` with at most {_MAX_TRIALS} trials and
{max_secs:g} s per graph, the confirmation included. "found" is the placer that proposed what was
found, or that the graph stays as it came. What was found was then measured again, side by side with
the others, in {_ROUNDS} rounds of fresh processes. The last columns are speed-ups with 95 %
intervals of what was found over the graph as it came, over everything on the better device, and
over the best split by layer; "-": it is what was found, it did not run, or nothing was found.

{markdown_table(_HEADERS, rows, "lrrlrrrr")}
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Optimises the graphs and writes what came of it.

    Args:
        argv: the arguments; those of the process when None.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", choices=[*GRAPHS], default=[*GRAPHS])
    parser.add_argument("--max_secs", type=float, default=285.0, help="per graph (default 285)")
    parser.add_argument("--log_dir", default="runs/auto_live", help="where searches are kept")
    parser.add_argument("--out_dir", default="benchmarks/results/auto_live")
    args = parser.parse_args(argv)
    rows = []
    for name in args.graphs:
        rows.append(_optimized(name, pathlib.Path(args.log_dir, name), args.max_secs))
        # After every graph, so that what is done is there.
        write_table(_page(rows, args.max_secs), pathlib.Path(args.out_dir, "auto_live.md"))


if __name__ == "__main__":
    main()
