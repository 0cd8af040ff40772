"""The command `log`: prints what a search has measured, learned and found."""

from __future__ import annotations

import argparse
import os
import time
from typing import TYPE_CHECKING, Any

from graph_passes.util.messages import plain_text
from tf_placer.cli.answer import add_json, answer, json_text, print_output
from tf_placer.text.notes import say
from tf_placer.text.table import terminal_width

if TYPE_CHECKING:
    from tf_placer.runs.search_state import SearchState
    from tf_placer.search.trial_log import Trial

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Prints a table of the trials of a search, one of what its placer has learned, and the "
    "verdict, also while it runs."
)
_POLL_SECS = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.add_argument("log_dir", help="directory of the search, as given to its --log_dir")
    parser.add_argument(
        "--follow",
        action="store_true",
        help="print each trial when it has ended, until the search has; waits for one to begin. "
        "With --json a JSON object on each line",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Prints the log of a search.

    Raises:
        LogError: it is damaged.
        OSError: it cannot be read.
    """
    from tf_placer.report.trials_table import log_table
    from tf_placer.runs.run_directory import TRIALS
    from tf_placer.runs.search_state import read_search_state
    from tf_placer.search.distributed.tallies import workers_table
    from tf_placer.search.training_log import TRAINING

    if args.follow:
        try:
            _follow(args)
        except KeyboardInterrupt:
            say("not followed any more; the search goes on")
        return
    trials, training = (os.path.join(args.log_dir, name) for name in (TRIALS, TRAINING))
    learned, updates = _learned(args.log_dir) if os.path.exists(training) else (None, [])
    # A search on a problem has no log of trials.
    if os.path.exists(trials) or not os.path.exists(training):
        state = read_search_state(args.log_dir)
        shown = log_table(state.header, state.trials, width=terminal_width())
        by_worker = workers_table(state.trials)
        tables = [shown, *([f"\n{by_worker}\n"] if by_worker else [])]
        parts = ["\n".join([*tables, _verdict_line(state)])]
        values: dict[str, Any] = {
            "header": state.header,
            "trials": [_trial_values(trial) for trial in state.trials],
            "updates": updates,
            "verdict": state.to_json(),
        }
    else:
        parts = []
        values = {"header": None, "trials": [], "updates": updates, "verdict": None}
        learned = learned or "no update of the placer so far"
    parts += [learned] if learned else []
    answer(args, "\n\n".join(parts), values)


def _learned(log_dir: str) -> tuple[str | None, list[dict[str, Any]]]:
    """Shows the updates of the placer: None where there are none, as of one that learns nothing."""
    from tf_placer.report.controllers_table import controllers_table, staleness_line
    from tf_placer.report.training_table import training_table
    from tf_placer.search.training_log import read_training_log

    _, updates = read_training_log(log_dir)
    shown = training_table(updates, width=terminal_width()) if updates else None
    if shown is not None and (by_controller := controllers_table(updates)):
        shown = "\n\n".join([shown, f"{by_controller}\n\n{staleness_line(updates)}"])
    missing = dict.fromkeys(("controller", "version", "staleness"))
    return shown, [{**missing, **update.to_json()} for update in updates]


def _trial_values(trial: Trial) -> dict[str, Any]:
    """Makes the JSON form of a trial: all have the same entries, unlike in the log."""
    missing = dict.fromkeys(
        ("reference_secs", "drift", "position", "worker", "controller", "version")
    )
    return {**missing, **trial.to_json()}


def _verdict_line(state: SearchState) -> str:
    if state.result is None:
        return f"verdict: {state.reason}"
    return f"verdict: {'placed' if state.is_placed else 'unchanged'}: {state.reason}"


def _follow(args: argparse.Namespace) -> None:
    """Prints what a search writes as it comes."""
    from tf_placer.report.trials_table import header_lines, trial_line
    from tf_placer.runs.search_state import read_search_state

    path = os.path.join(args.log_dir, "trials.jsonl")
    if not _has_content(path):
        say(f"waiting for a search in {args.log_dir}")
        while not _has_content(path):
            time.sleep(_POLL_SECS)

    def tell(text: str, **values: object) -> None:
        plain = plain_text(text, lines=True)
        print_output(json_text(args.command, values) if args.json else plain)

    shown = -1  # Of the trials; the header comes before them.
    while True:
        state = read_search_state(args.log_dir)
        if shown < 0:
            tell(
                "\n".join([*header_lines(state.header, width=terminal_width()), ""]),
                header=state.header,
            )
            shown = 0
        original_secs = state.trials[0].measurement.median_secs if state.trials else None
        for trial in state.trials[shown:]:
            tell(trial_line(trial, original_secs), trial=_trial_values(trial))
        shown = len(state.trials)
        if not state.is_running:
            tell(_verdict_line(state), verdict=state.to_json())
            return
        time.sleep(_POLL_SECS)


def _has_content(path: str) -> bool:
    return os.path.exists(path) and os.path.getsize(path) > 0
