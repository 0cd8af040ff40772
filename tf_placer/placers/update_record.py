"""What an update of a placer that learns saw and did."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

from graph_passes.util.json_records import read_record, read_value

__all__ = ["UpdateRecord"]


# What only searches with several controllers have.
_OF_CONTROLLERS = ("controller", "version", "staleness")


def _read_curve_number(value: Any) -> float:
    # JSON does not have these numbers.
    is_known = value in ("nan", "inf", "-inf")
    number: float = float(value) if is_known else read_value(float, value, "it")
    return number


_CurveNumber = Annotated[float, _read_curve_number]


@dataclasses.dataclass(frozen=True)
class UpdateRecord:
    """One point of every training curve.

    Attributes:
        update: its number, from 0.
        samples: placements that the placer had observed by then.
        kind: what updated, such as "reinforce", "ppo" or "ce".
        mean_reward: of the batch, failures included; larger is better.
        baseline: what the rewards were compared with.
        entropy: mean entropy of a decision in nats, before the update.
        divergence: mean divergence of a decision's distribution, D(before || after), in nats.
        loss: what was minimized, before its first step; None for an update without one.
        gradient_norm: global norm of the first gradient before clipping, or of one that is not
            finite, whose step was not taken; None without one.
        best_step_secs: the fastest placement observed so far; None while all have failed.
        mean_step_secs: mean over the placements of the batch that ran; None if none did.
        failures: placements of the batch that failed.
        batch_size: placements of the batch.
        controller: number of the controller that learned, from 1; None where there is but one.
        version: the version of the weights that the batch was sampled under; None as above.
        staleness: updates of the weights since then; None as above.
    """

    update: int
    samples: int
    kind: str
    mean_reward: _CurveNumber
    baseline: _CurveNumber
    entropy: _CurveNumber
    divergence: _CurveNumber
    loss: _CurveNumber | None
    gradient_norm: _CurveNumber | None
    best_step_secs: _CurveNumber | None
    mean_step_secs: _CurveNumber | None
    failures: int
    batch_size: int
    controller: int | None = None
    version: int | None = None
    staleness: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form: the fields.

        A number that JSON does not have, as in the curves of a placer that came apart, is text:
        "nan", "inf" or "-inf".
        """
        values = dataclasses.asdict(self)
        for name in _OF_CONTROLLERS:
            if values[name] is None:
                del values[name]
        return {name: _json_number(value) for name, value in values.items()}

    @classmethod
    def from_json(cls, value: object) -> UpdateRecord:
        """Reads what `to_json` wrote, by this version or a later one.

        Raises:
            ValueError: the value is not an update.
        """
        return read_record(cls, value)


def _json_number(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
