"""Measured operations beside what the analytic model says of them on a class of devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from benchmarks.gpu_model.cases import Case, Cases
from benchmarks.gpu_model.measurement import MeasuredCase, Measurement
from tf_placer.machines.machine import DeviceClass

__all__ = ["Comparison", "Fit", "KindRow", "ModelRow", "compare", "modeled_secs"]

_TF32 = "tf32"
_FLOAT32 = "float32"
# Work that takes less than this share of a launch says what a launch takes, and nothing else.
_SMALL_SHARE = 0.1

_Number = TypeVar("_Number", float, np.ndarray)


def modeled_secs(flops: _Number, touched_bytes: _Number, known: DeviceClass) -> _Number:
    """Computes the seconds of operations as `tf_placer.costs.analytic` does."""
    by_flops = flops / (known.peak_flops * known.compute_fraction)
    rate = known.memory_bandwidth_bytes_per_sec * known.bandwidth_fraction
    return known.launch_secs + np.maximum(by_flops, touched_bytes / rate)


@dataclasses.dataclass(frozen=True)
class KindRow:
    """The operations of a kind.

    Attributes:
        kind: its name.
        cases: the number of operations measured.
        weight: the share of the measured operations' modeled time, all models alike.
        overall: the sum of measured by the sum of modeled seconds, weighted.
        quantiles: of measured by modeled seconds: the tenth part has at most the first, half have
            at most the second, and the tenth part has at least the third.
        worst: the operation that is farthest off.
        worst_ratio: its measured by its modeled seconds.
        reached: the share of the peak or bandwidth that the work reaches, whichever bounds it, for
            operations whose work takes longer than a launch; None if there are none.
    """

    kind: str
    cases: int
    weight: float
    overall: float
    quantiles: tuple[float, float, float]
    worst: MeasuredCase
    worst_ratio: float
    reached: float | None


@dataclasses.dataclass(frozen=True)
class ModelRow:
    """A step of a model: the sum of its operations, one after the other.

    Attributes:
        name: of the model.
        covered: the share of its modeled step that was measured.
        modeled_secs: of the operations measured, as the catalogue has it.
        fitted_secs: the same with the fitted numbers.
        measured_secs: with inputs from memory, contractions with TF32 where it was measured.
        cached_secs: the same with inputs that caches may hold.
        float32_secs: with inputs from memory, without TF32.
        host_secs: the time that PyTorch's host takes to start the operations.
    """

    name: str
    covered: float
    modeled_secs: float
    fitted_secs: float
    measured_secs: float
    cached_secs: float
    float32_secs: float
    host_secs: float


@dataclasses.dataclass(frozen=True)
class Fit:
    """The numbers of a class of devices that fit what was measured.

    Attributes:
        compute_fraction: of the peak; None if nothing measured is bound by it.
        bandwidth_fraction: of the bandwidth; None alike.
        launch_secs: of operations with hardly any work; None if there are none.
    """

    compute_fraction: float | None
    bandwidth_fraction: float | None
    launch_secs: float | None

    def applied(self, known: DeviceClass) -> DeviceClass:
        """Puts the numbers into a class."""
        found = {name: each for name, each in dataclasses.asdict(self).items() if each is not None}
        return dataclasses.replace(known, **found)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Measurements of a device beside a class of the catalogue.

    Attributes:
        kinds: by kind, the heaviest first.
        models: by model.
        fit: the numbers that fit.
    """

    kinds: tuple[KindRow, ...]
    models: tuple[ModelRow, ...]
    fit: Fit


def compare(measurement: Measurement, cases: Cases, known: DeviceClass) -> Comparison:
    """Compares what was measured with what the model says of a class of devices.

    Args:
        measurement: the measured operations.
        cases: the file of cases that it is of.
        known: the class.
    """
    modeled = _Modeled(measurement.cases, cases, known)
    kinds = [modeled.kind_row(kind) for kind in dict.fromkeys(modeled.kinds)]
    return Comparison(
        tuple(sorted(kinds, key=lambda row: -row.weight)),
        tuple(
            modeled.model_row(number, name, cases.covered[name])
            for number, name in enumerate(cases.model_secs)
            if modeled.runs[:, number].any()
        ),
        modeled.fit,
    )


def _preferred(secs: Mapping[str, float]) -> float:
    return secs.get(_TF32, secs[_FLOAT32])


class _Modeled:
    """The measured operations as arrays, an element for each, with what the model says of them."""

    def __init__(self, measured: Sequence[MeasuredCase], cases: Cases, known: DeviceClass) -> None:
        self.measured, self.known = measured, known
        self.kinds = np.array([each.case.kind for each in measured])
        self.flops, self.touched_bytes, self.runs = _work([each.case for each in measured], cases)
        self.secs = np.array([_preferred(each.secs) for each in measured])
        self.modeled = modeled_secs(self.flops, self.touched_bytes, known)
        work_secs = self.modeled - known.launch_secs
        self.is_large = work_secs > known.launch_secs
        self.is_bound_by_flops = self.flops / (known.peak_flops * known.compute_fraction) >= (
            self.touched_bytes / (known.memory_bandwidth_bytes_per_sec * known.bandwidth_fraction)
        )
        flops, touched_bytes, runs = _work(cases.cases, cases)
        # Of all cases, also those that were not measured.
        self.model_secs = modeled_secs(flops, touched_bytes, known) @ runs
        # How often all models, scaled to equal steps, run each operation.
        self.frequencies = (self.runs / self.model_secs).sum(axis=1)
        self.frequencies /= (self.frequencies * self.modeled).sum()
        small = self.secs[work_secs < _SMALL_SHARE * known.launch_secs]
        launch_secs = float(np.median(small)) if len(small) else None
        self.launch_secs = known.launch_secs if launch_secs is None else launch_secs
        self.fit = Fit(
            self.reached(self.is_bound_by_flops), self.reached(~self.is_bound_by_flops), launch_secs
        )

    def reached(self, chosen: np.ndarray) -> float | None:
        """Computes the share of the peak, or of the bandwidth, that operations reach together.

        That is the work of those that take longer than a launch, divided by their seconds beyond a
        launch, so that with it the sum over all steps is what was measured.
        """
        chosen = chosen & self.is_large
        ideal = np.where(
            self.is_bound_by_flops,
            self.flops / self.known.peak_flops,
            self.touched_bytes / self.known.memory_bandwidth_bytes_per_sec,
        )
        actual = np.maximum(self.secs - self.launch_secs, 0.0)
        actual_secs = (self.frequencies * actual)[chosen].sum()
        return (
            float((self.frequencies * ideal)[chosen].sum() / actual_secs) if actual_secs else None
        )

    def kind_row(self, kind: str) -> KindRow:
        """Compares the operations of a kind."""
        chosen = self.kinds == kind
        ratios = self.secs[chosen] / self.modeled[chosen]
        order, tenth = np.sort(ratios), len(ratios) // 10
        weight = (self.frequencies * self.modeled)[chosen].sum()
        worst = int(np.argmax(np.maximum(ratios, 1 / ratios)))
        return KindRow(
            kind=kind,
            cases=len(ratios),
            weight=float(weight),
            overall=float((self.frequencies * self.secs)[chosen].sum() / weight),
            quantiles=(float(order[tenth]), float(np.median(order)), float(order[-1 - tenth])),
            worst=self.measured[np.flatnonzero(chosen)[worst]],
            worst_ratio=float(ratios[worst]),
            reached=self.reached(chosen),
        )

    def model_row(self, number: int, name: str, covered: float) -> ModelRow:
        """Compares a step of a model, of which the file of cases covers a share."""
        runs = self.runs[:, number]
        fitted = modeled_secs(self.flops, self.touched_bytes, self.fit.applied(self.known))
        cached, host, float32 = (
            np.array(values) @ runs
            for values in (
                [_preferred(each.cached_secs) for each in self.measured],
                [_preferred(each.host_secs) for each in self.measured],
                [each.secs[_FLOAT32] for each in self.measured],
            )
        )
        modeled = self.modeled @ runs
        return ModelRow(
            name=name,
            # The file of cases knows the rest of the step only for the class that chose the cases.
            covered=float(modeled / self.model_secs[number] * covered),
            modeled_secs=float(modeled),
            fitted_secs=float(fitted @ runs),
            measured_secs=float(self.secs @ runs),
            cached_secs=float(cached),
            float32_secs=float(float32),
            host_secs=float(host),
        )


def _work(of: Sequence[Case], cases: Cases) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lists flops and bytes of operations, and their runs, [operations, models]."""
    return (
        np.array([case.flops for case in of]),
        np.array([case.touched_bytes for case in of]),
        np.array([[case.runs.get(name, 0.0) for name in cases.model_secs] for case in of]),
    )
