"""What the directory of a live search says of it: what it is of, its trials, and how it ended."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from tf_placer.confirmation.outcome import Outcome
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.runs.run_result import RunResult
from tf_placer.runs.verdict import best_comparison, verdict
from tf_placer.search.log_file import is_being_written
from tf_placer.search.trial_log import Trial, read_log

__all__ = ["SearchState", "read_search_state"]


@dataclasses.dataclass(frozen=True)
class SearchState:
    """A search as its directory shows it.

    Attributes:
        header: what it is of.
        trials: so far.
        is_running: whether a process searches right now.
        result: how it ended; None if it has not.
    """

    header: Mapping[str, Any]
    trials: tuple[Trial, ...]
    is_running: bool
    result: RunResult | None

    @property
    def is_placed(self) -> bool:
        """Whether a faster placement was found."""
        return self.result is not None and self.result.outcome is Outcome.FASTER

    @property
    def reason(self) -> str:
        """Why it ended as it did, or why there is no verdict, in one sentence."""
        if self.result is not None:
            return verdict(self.result)
        if self.is_running:
            return "none yet: the search is running"
        return "none: the search was stopped before its end, and the same call goes on with it"

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form of the verdict."""
        result, comparison = self.result, None
        if result is not None and result.confirmation is not None:
            known = result.confirmation.comparisons
            comparison = (
                best_comparison(result.confirmation)
                if result.winner is None
                else known[result.winner]
            )
        return {
            "is_running": self.is_running,
            "outcome": None if result is None else result.outcome.value,
            "placed": self.is_placed,
            "reason": self.reason,
            "speedup": None if comparison is None else comparison.speedup,
            "speedup_interval": None if comparison is None else comparison.interval,
        }


def read_search_state(path: str | os.PathLike[str]) -> SearchState:
    """Reads the directory of a search; works while it runs.

    Raises:
        OSError: its log or its result cannot be read.
        ValueError: one of them is damaged; the message names the file.
    """
    directory = RunDirectory(path)
    # Asked first: a search that ends now has written all that is read then.
    is_running = is_being_written(directory.trials)
    header, trials = read_log(os.path.join(path, directory.trials.name))
    result = None if is_running else directory.read_result()
    if result is not None and result.num_trials != len(trials):
        result = None  # It is of an earlier call, and the later one was stopped.
    return SearchState(header, trials, is_running, result)
