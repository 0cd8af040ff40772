"""The command `log`: prints the trials, the learning curve and the verdict of a search."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from typing import Any

from graph_passes.util.messages import plain_text
from tf_placer.cli.answer import add_json, answer, format_json, print_output
from tf_placer.text.notes import say
from tf_placer.text.table import terminal_width

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Prints the trials of a search, the updates of a learned placer, and the verdict, also while "
    "the search runs; of a search on a problem, its best placement and the candidates."
)
_POLL_SECS = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("log_dir", help="directory of the search, as given to its --log_dir")
    parser.add_argument(
        "--follow",
        action="store_true",
        help="print each trial when it ends (of a search on a problem its best so far, when that "
        "improves), until the search ends; waits for a search to begin. With --json, prints a JSON "
        "object on each line",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Prints the log of a search.

    Raises:
        LogError: the log is damaged.
        OSError: the log cannot be read.
        ValueError: a file is damaged.
    """
    from tf_placer.runs.search_description import describe_search

    if args.follow:
        try:
            _follow(args)
        except KeyboardInterrupt:
            say("stopped following; the search continues")
        return
    answer(args, *describe_search(args.log_dir))


def _follow(args: argparse.Namespace) -> None:
    """Prints the trials of a search as they end, and then its verdict."""
    from tf_placer.report.trials_table import format_header, format_trial
    from tf_placer.runs.run_directory import RunDirectory
    from tf_placer.runs.search_description import (
        describe_costs,
        describe_request,
        trial_values,
        verdict_line,
    )
    from tf_placer.runs.search_state import read_search_state

    path = os.path.join(args.log_dir, "trials.jsonl")
    plan = os.path.join(args.log_dir, "search.json")
    if not (_has_content(path) or _has_content(plan)):
        say(f"waiting for a search in {args.log_dir}")
        while not (_has_content(path) or _has_content(plan)):
            time.sleep(_POLL_SECS)
    if not _has_content(path):
        _follow_plan(args)
        return

    num_printed, has_header = 0, False
    while True:
        state = read_search_state(args.log_dir)
        if not has_header:
            directory = RunDirectory(args.log_dir)
            shown = describe_costs(state.header, directory)
            _tell(
                args,
                "\n".join([*format_header(shown, width=terminal_width()), ""]),
                header=state.header,
                request=describe_request(directory),
            )
            has_header = True
        original_secs = state.trials[0].measurement.median_secs if state.trials else None
        for trial in state.trials[num_printed:]:
            _tell(args, format_trial(trial, original_secs), trial=trial_values(trial))
        num_printed = len(state.trials)
        if not state.is_running:
            _tell(args, verdict_line(state), verdict=state.to_json())
            return
        time.sleep(_POLL_SECS)


def _follow_plan(args: argparse.Namespace) -> None:
    """Prints each improvement of a search on a problem, and then what it has found."""
    from tf_placer.files import read_json
    from tf_placer.report.plan_directory import PlanDirectory
    from tf_placer.runs.search_description import describe_plan_request, describe_search
    from tf_placer.text.units import format_duration, format_step

    directory = PlanDirectory(args.log_dir)
    record = directory.read_record()
    assert record is not None
    _tell(args, record.command, header=dict(record.header), request=describe_plan_request(record))
    printed: dict[str, Any] = {}
    while directory.is_running:
        result = read_json(directory.result) if directory.result.exists() else printed
        best = _select(result, "trials", "elapsed_secs", "step_secs", "feasible")
        if best != printed:
            step = "none" if best["step_secs"] is None else format_step(best["step_secs"])
            fits = "" if best["feasible"] else ", which does not fit"
            after = f"{best['trials']:,} trials in {format_duration(best['elapsed_secs'])}"
            _tell(args, f"best after {after}: {step}{fits}", best=best)
        printed = best
        time.sleep(_POLL_SECS)
    text, values = describe_search(args.log_dir)
    _tell(args, text, **_select(values, "updates", "plan"))


def _select(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def _tell(args: argparse.Namespace, text: str, **values: object) -> None:
    plain = plain_text(text, lines=True)
    print_output(format_json(args.command, values) if args.json else plain)


def _has_content(path: str) -> bool:
    return os.path.exists(path) and os.path.getsize(path) > 0
