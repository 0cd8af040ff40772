"""The command `log`: prints what a search has measured, learned and found."""

from __future__ import annotations

import argparse
import os

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Prints a table of the trials of a search, and one of what its placer has learned, also while "
    "it runs."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.add_argument("log_dir", help="directory of the search, as given to its --log_dir")


def run(args: argparse.Namespace) -> None:
    """Prints the log of a search.

    Raises:
        LogError: it is damaged.
        OSError: it cannot be read.
    """
    from tf_placer.live.run_directory import TRIALS, Outcome, RunDirectory
    from tf_placer.live.verdict import verdict
    from tf_placer.report.training_table import training_table
    from tf_placer.report.trials_table import log_table
    from tf_placer.search.distributed.tallies import workers_table
    from tf_placer.search.training_log import TRAINING, read_training_log
    from tf_placer.search.trial_log import read_log

    trials, training = (os.path.join(args.log_dir, name) for name in (TRIALS, TRAINING))
    # A search on a problem has no log of trials.
    if os.path.exists(trials) or not os.path.exists(training):
        print(log_table(*read_log(trials)))
        if table := workers_table(read_log(trials)[1]):
            print(f"\n{table}\n")
        result = RunDirectory(args.log_dir).read_result()
        if result is None:
            print("verdict: the search has not ended")
        else:
            outcome = Outcome(result["outcome"])
            found = "placed" if outcome is Outcome.FASTER else "unchanged"
            print(f"verdict: {found}: {verdict(outcome, result)}")
    if os.path.exists(training):
        _, updates = read_training_log(args.log_dir)
        print(f"\n{training_table(updates)}" if updates else "nothing was learned so far")
