"""The state of a live search, as read from its directory: header, trials and result."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from tf_placer.confirmation.outcome import Outcome
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.run_result import RunResult
from tf_placer.runs.verdict import verdict
from tf_placer.search.log_file import is_being_written
from tf_placer.search.trial_log import Trial, read_log

__all__ = ["SearchState", "read_search_state"]


@dataclasses.dataclass(frozen=True)
class SearchState:
    """The state of a search.

    Attributes:
        header: the header of the log.
        trials: all trials so far.
        is_running: whether a process is searching now.
        result: the result; None if the search has not ended.
    """

    header: Mapping[str, Any]
    trials: tuple[Trial, ...]
    is_running: bool
    result: RunResult | None

    @property
    def is_placed(self) -> bool:
        """True if a faster placement was found."""
        return self.result is not None and self.result.outcome is Outcome.FASTER

    @property
    def reason(self) -> str:
        """The reason for the verdict, or for its absence, in one sentence."""
        if self.result is not None:
            return verdict(self.result)
        if self.is_running:
            return "none yet: the search is running"
        return "none: the search was stopped before its end, and the same call resumes it"

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form of the verdict."""
        result, comparison = self.result, None
        if result is not None and result.confirmation is not None and result.winner is not None:
            comparison = result.confirmation.comparisons[result.winner]
        return {
            "is_running": self.is_running,
            "outcome": None if result is None else result.outcome.value,
            "placed": self.is_placed,
            "reason": self.reason,
            "speedup": None if comparison is None else comparison.speedup,
            "speedup_interval": None if comparison is None else comparison.interval,
            "original_secs": None if result is None else result.original_secs,
            "placed_secs": None if result is None else result.placed_secs,
            "one_process_secs": None if result is None else result.one_process_secs,
        }


def read_search_state(path: str | os.PathLike[str]) -> SearchState:
    """Reads the state of a search, also while it runs.

    Raises:
        OSError: the log or the result cannot be read.
        ValueError: the log or the result is damaged; the message names the file.
    """
    directory = RunDirectory(path)
    # Check the lock before reading: a search that ends meanwhile has completed its files.
    is_running = is_being_written(directory.trials)
    header, trials = read_log(os.path.join(path, directory.trials.name))
    result = None if is_running else directory.read_result()
    if result is not None and result.num_trials != len(trials):
        result = None  # An earlier call wrote the result, and a later one was stopped.
    return SearchState(header, trials, is_running, result)
