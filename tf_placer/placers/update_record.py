"""The record of an update of a learned placer."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any

from graph_passes.util.json_records import read_record, read_value

__all__ = ["UpdateRecord"]


# These fields exist only in searches with several controllers; logs of others leave them out.
_CONTROLLER_FIELDS = ("controller", "version", "staleness")


def _read_curve_number(value: Any) -> float:
    # JSON has no NaN and no infinities, so they are strings.
    is_special = value in ("nan", "inf", "-inf")
    number: float = float(value) if is_special else read_value(float, value, "it")
    return number


_CurveNumber = Annotated[float, _read_curve_number]


@dataclasses.dataclass(frozen=True)
class UpdateRecord:
    """A point of all training curves.

    Attributes:
        update: the number of the update, from 0.
        samples: number of placements that the placer had observed at the update.
        kind: the kind of update, such as "reinforce", "ppo" or "ce".
        mean_reward: mean reward of the batch, failures included; larger is better.
        baseline: the baseline of the rewards.
        entropy: mean entropy of a decision in nats, before the update.
        divergence: mean divergence of a decision's distribution, D(before || after), in nats.
        loss: the loss before the first step of the update; None for an update without a loss.
        gradient_norm: global norm of the first gradient before clipping, or of a gradient that is
            not finite, whose step was skipped; None for an update without gradients.
        best_step_secs: step time of the fastest placement observed so far; None while all have
            failed.
        mean_step_secs: mean step time of the placements of the batch that ran; None if none ran.
        failures: number of placements of the batch that failed.
        batch_size: number of placements of the batch.
        controller: number of the controller that learned, from 1; None if there is only one.
        version: version of the weights that sampled the batch; None if there is only one
            controller.
        staleness: number of updates of the weights since that version; None if there is only one
            controller.
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

        Numbers that JSON does not have, as after a diverged update, are strings: "nan", "inf" or
        "-inf".
        """
        values = dataclasses.asdict(self)
        for name in _CONTROLLER_FIELDS:
            if values[name] is None:
                del values[name]
        return {name: _json_number(value) for name, value in values.items()}

    @classmethod
    def from_json(cls, value: object) -> UpdateRecord:
        """Reads the JSON form, which this version or a later one wrote.

        Raises:
            ValueError: the value is not an update record.
        """
        return read_record(cls, value)


def _json_number(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
