"""The command `log`: prints what a search has measured, learned and found."""

from __future__ import annotations

import argparse
import os
import time

from graph_passes.util.messages import plain_text
from tf_placer.cli.answer import add_json, answer, json_text, print_output
from tf_placer.text.notes import say
from tf_placer.text.table import terminal_width

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
    from tf_placer.runs.search_description import describe_search

    if args.follow:
        try:
            _follow(args)
        except KeyboardInterrupt:
            say("not followed any more; the search goes on")
        return
    answer(args, *describe_search(args.log_dir))


def _follow(args: argparse.Namespace) -> None:
    """Prints what a search writes as it comes."""
    from tf_placer.report.trials_table import header_lines, trial_line
    from tf_placer.runs.search_description import trial_values, verdict_line
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
            tell(trial_line(trial, original_secs), trial=trial_values(trial))
        shown = len(state.trials)
        if not state.is_running:
            tell(verdict_line(state), verdict=state.to_json())
            return
        time.sleep(_POLL_SECS)


def _has_content(path: str) -> bool:
    return os.path.exists(path) and os.path.getsize(path) > 0
