"""How a live search ended, as its directory keeps it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from graph_passes.util.json_records import read_record
from graph_passes.util.json_text import shown
from tf_placer.confirmation.confirmation import Confirmation
from tf_placer.confirmation.outcome import Outcome

__all__ = ["RunResult"]


@dataclasses.dataclass(frozen=True)
class RunResult:
    """How a search ended.

    Attributes:
        outcome: in a word.
        num_trials: trials of the search.
        max_trials: how many it might make.
        max_secs: seconds that it might take; None for no limit.
        winner: label of what was found, or None.
        note: what else to say, or None.
        confirmation: finalists measured side by side, or None.
        finalists: what was, or could have been, confirmed: trial by label.
        explanation: why, as `Explanation.to_json` says it, or None.
        original_assignment: device index per group of the graph as it came; None if a group is on
            several devices.
        is_complete: whether it ended by itself.
        request_digest: of what was asked; empty in results of earlier versions.
    """

    outcome: Outcome
    num_trials: int
    max_trials: int
    max_secs: float | None
    winner: str | None
    note: str | None
    confirmation: Confirmation | None
    finalists: Mapping[str, int]
    explanation: Mapping[str, Any] | None = None
    original_assignment: tuple[int, ...] | None = None
    is_complete: bool = False
    request_digest: str = ""

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
        """Reads what `to_json` wrote, in this version or an earlier one.

        Raises:
            ValueError: the value is no result.
        """
        result = read_record(cls, value)
        if (result.outcome is Outcome.FASTER) != (result.winner is not None):
            raise ValueError("'outcome' and 'winner' do not agree")
        confirmed = result.confirmation.comparisons if result.confirmation else {}
        if result.winner is not None and result.winner not in result.finalists.keys() & confirmed:
            raise ValueError(f"'winner' is {shown(result.winner)}, which was not confirmed")
        return result

    def answers(self, max_trials: int, max_secs: float, num_trials: int) -> bool:
        """Says whether a request that is that of its log, apart from the budget, needs no more.

        Args:
            max_trials: how many trials are asked for.
            max_secs: seconds that they may take.
            num_trials: how many trials the log has.
        """
        return (
            self.is_complete
            and self.num_trials == num_trials
            and max_trials <= self.max_trials
            and max_secs <= (math.inf if self.max_secs is None else self.max_secs)
        )
