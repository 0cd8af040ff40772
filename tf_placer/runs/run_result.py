"""The result of a live search, as stored in its directory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from graph_passes.util.json_records import read_record
from graph_passes.util.json_text import format_value
from tf_placer.confirmation.confirmation import Confirmation
from tf_placer.confirmation.outcome import Outcome
from tf_placer.search.trial_log import ORIGINAL

__all__ = ["RunResult", "is_slower_than_one_process"]


def is_slower_than_one_process(placed_secs: float | None, one_process_secs: float | None) -> bool:
    """Returns whether one process on all cores is faster than a placement on worker processes.

    Args:
        placed_secs: the step of the placement in seconds; None if nothing was placed.
        one_process_secs: the step of the original in one process; None if it was not measured.
    """
    if placed_secs is None or one_process_secs is None:
        return False
    return one_process_secs < placed_secs


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The result of a search.

    Attributes:
        outcome: the way in which the search ended.
        num_trials: number of trials.
        max_trials: maximum number of trials.
        max_secs: time limit in seconds; None for no limit.
        winner: label of the confirmed placement, or None.
        note: a note for users, or None.
        confirmation: finalists measured side by side, or None.
        finalists: trial number of each finalist by label.
        unfitting: by placer, the number of its placements that were not measured because by
            simulation they do not fit.
        explanation: the explanation, as `Explanation.to_json` writes it, or None.
        original_assignment: device index per group of the original; None if a group is on several
            devices.
        is_complete: whether the search ended by itself.
        request_digest: digest of the request; empty in results of earlier versions.
        kept: the day of the search whose kept answer this is; None for a search of its own.
        answer_kept: whether the store of answers has this result; None without a store.
        answer_store: the directory of the store that has it; None for no store, and in results of
            earlier versions.
        one_process_secs: the step of the original in one process on all cores that worker
            processes divide; None if that was not measured.
        has_placer_ended: whether the placer had no other placement to propose, with time left.
    """

    outcome: Outcome
    num_trials: int
    max_trials: int
    max_secs: float | None
    winner: str | None
    note: str | None
    confirmation: Confirmation | None
    finalists: Mapping[str, int]
    unfitting: Mapping[str, int] = dataclasses.field(default_factory=dict)
    explanation: Mapping[str, Any] | None = None
    original_assignment: tuple[int, ...] | None = None
    is_complete: bool = False
    request_digest: str = ""
    kept: str | None = None
    answer_kept: bool | None = None
    answer_store: str | None = None
    one_process_secs: float | None = None
    has_placer_ended: bool = False

    @property
    def original_secs(self) -> float | None:
        """Step time of the original in the confirmation; None if nothing was confirmed."""
        return self.confirmation.step_secs(ORIGINAL) if self.confirmation else None

    @property
    def placed_secs(self) -> float | None:
        """Step time of the winner in the confirmation; None if nothing won."""
        if self.confirmation is None or self.winner is None:
            return None
        return self.confirmation.step_secs(self.winner)

    @property
    def is_slower_than_one_process(self) -> bool:
        """Returns whether something won, and one process on all cores is faster than that."""
        return is_slower_than_one_process(self.placed_secs, self.one_process_secs)

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form: all fields."""
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        confirmation = None if self.confirmation is None else self.confirmation.to_json()
        return {
            "format": 1,
            **fields,
            "outcome": self.outcome.value,
            "confirmation": confirmation,
        }

    @classmethod
    def from_json(cls, value: object) -> RunResult:
        """Reads the JSON form, of this version or an earlier one.

        Raises:
            ValueError: the value is no result.
        """
        result = read_record(cls, value)
        if (result.outcome is Outcome.FASTER) != (result.winner is not None):
            raise ValueError("'outcome' and 'winner' do not agree")
        confirmed = result.confirmation.comparisons if result.confirmation else {}
        if result.winner is not None and result.winner not in result.finalists.keys() & confirmed:
            raise ValueError(f"'winner' is {format_value(result.winner)}, which was not confirmed")
        return result

    def answers(self, max_trials: int, max_secs: float, num_trials: int) -> bool:
        """Returns whether the result also answers the same request with another budget.

        Args:
            max_trials: maximum number of trials of the request.
            max_secs: time limit of the request in seconds.
            num_trials: number of trials in the log.
        """
        return (
            self.is_complete
            and self.num_trials == num_trials
            and max_trials <= self.max_trials
            and max_secs <= (math.inf if self.max_secs is None else self.max_secs)
        )
