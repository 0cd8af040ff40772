"""Measured operations beside what the analytic model says of them on a class of devices."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from benchmarks.gpu_model.cases import Case, Cases
from benchmarks.gpu_model.measurement import MeasuredCase, Measurement
from tf_placer.machines.machine import DeviceClass

__all__ = [
    "Comparison",
    "Fit",
    "KindRow",
    "ModelRow",
    "Ratio",
    "compare",
    "modeled_secs",
]

TF32 = "tf32"
FLOAT32 = "float32"
# Work that takes less than this share of a launch says what a launch takes, and nothing else.
_SMALL_SHARE = 0.1


def modeled_secs(flops: float, touched_bytes: float, known: DeviceClass) -> float:
    """Computes the seconds of an operation as `tf_placer.costs.analytic` does."""
    return known.launch_secs + _work_secs(flops, touched_bytes, known)


def _work_secs(flops: float, touched_bytes: float, known: DeviceClass) -> float:
    return max(
        flops / (known.peak_flops * known.compute_fraction),
        touched_bytes / (known.memory_bandwidth_bytes_per_sec * known.bandwidth_fraction),
    )


@dataclasses.dataclass(frozen=True)
class Ratio:
    """The measured time of an operation beside the modeled one.

    Attributes:
        key: of the case.
        kind: its kind.
        call: the call of PyTorch that stood for it.
        measured_secs: with inputs from memory; TF32 where it was measured.
        modeled_secs: what the model says.
        weight: the share of all models' modeled steps that it has.
    """

    key: str
    kind: str
    call: str
    measured_secs: float
    modeled_secs: float
    weight: float

    @property
    def value(self) -> float:
        """Measured by modeled."""
        return self.measured_secs / self.modeled_secs


@dataclasses.dataclass(frozen=True)
class KindRow:
    """The operations of a kind.

    Attributes:
        kind: its name.
        cases: the number of operations measured.
        weight: the share of the measured operations' modeled time, all models alike.
        overall: the sum of measured by the sum of modeled seconds, weighted.
        median: of measured by modeled seconds.
        low: the tenth part has at most this.
        high: the tenth part has at least this.
        worst: the operation that is farthest off.
        reached: the share of the peak or bandwidth that the work reaches, whichever bounds it, for
            operations whose work takes longer than a launch; None if there are none.
    """

    kind: str
    cases: int
    weight: float
    overall: float
    median: float
    low: float
    high: float
    worst: Ratio
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
        host_secs: what PyTorch's host takes to start the operations.
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
        ratios: of each operation.
    """

    kinds: tuple[KindRow, ...]
    models: tuple[ModelRow, ...]
    fit: Fit
    ratios: tuple[Ratio, ...]


def compare(measurement: Measurement, cases: Cases, known: DeviceClass) -> Comparison:
    """Compares what was measured with what the model says of a class of devices.

    Args:
        measurement: the measured operations.
        cases: the file of cases that it is of.
        known: the class.
    """
    totals = _modeled_totals(cases, known)
    weights = {
        each.case.key: sum(
            runs * modeled_secs(each.case.flops, each.case.touched_bytes, known) / totals[name]
            for name, runs in each.case.runs.items()
            if name in totals
        )
        for each in measurement.cases
    }
    whole = sum(weights.values()) or 1.0
    ratios = {
        each.case.key: Ratio(
            each.case.key,
            each.case.kind,
            each.call,
            _preferred(each.secs),
            modeled_secs(each.case.flops, each.case.touched_bytes, known),
            weights[each.case.key] / whole,
        )
        for each in measurement.cases
    }
    fit = _fit(measurement.cases, ratios, known)
    kinds = []
    for kind in dict.fromkeys(each.kind for each in ratios.values()):
        of_kind = [each for each in measurement.cases if each.case.kind == kind]
        kinds.append(_kind_row(kind, of_kind, ratios, known, fit))
    return Comparison(
        tuple(sorted(kinds, key=lambda row: -row.weight)),
        tuple(
            _model_row(name, measurement.cases, cases, known, fit)
            for name in cases.model_secs
            if any(name in each.case.runs for each in measurement.cases)
        ),
        fit,
        tuple(ratios.values()),
    )


def _modeled_totals(cases: Cases, known: DeviceClass) -> dict[str, float]:
    totals = dict.fromkeys(cases.model_secs, 0.0)
    for case in cases.cases:
        for name, runs in case.runs.items():
            if name in totals:
                totals[name] += runs * modeled_secs(case.flops, case.touched_bytes, known)
    return totals


def _preferred(secs: Mapping[str, float]) -> float:
    return secs.get(TF32, secs[FLOAT32])


def _fit(measured: Sequence[MeasuredCase], ratios: Mapping[str, Ratio], known: DeviceClass) -> Fit:
    """Fits launches to the smallest operations, and fractions to those that take longer.

    The fractions are the work of all operations divided by their seconds beyond a launch, so that
    with them the sum over all steps is what was measured.
    """
    small = [
        ratios[each.case.key].measured_secs
        for each in measured
        if _work_secs(each.case.flops, each.case.touched_bytes, known)
        < _SMALL_SHARE * known.launch_secs
    ]
    launch_secs = statistics.median(small) if small else None
    base = known.launch_secs if launch_secs is None else launch_secs
    large = [each for each in measured if _takes_longer_than_launch(each.case, known)]
    by_flops = [each for each in large if _is_bound_by_flops(each.case, known)]
    by_bytes = [each for each in large if not _is_bound_by_flops(each.case, known)]
    return Fit(
        _reached(by_flops, ratios, known, base),
        _reached(by_bytes, ratios, known, base),
        launch_secs,
    )


def _takes_longer_than_launch(case: Case, known: DeviceClass) -> bool:
    return _work_secs(case.flops, case.touched_bytes, known) > known.launch_secs


def _is_bound_by_flops(case: Case, known: DeviceClass) -> bool:
    return _work_secs(case.flops, 0.0, known) >= _work_secs(0.0, case.touched_bytes, known)


def _reached(
    measured: Sequence[MeasuredCase],
    ratios: Mapping[str, Ratio],
    known: DeviceClass,
    launch_secs: float,
) -> float | None:
    """Computes the share of the peak, or of the bandwidth, that operations reach together."""
    ideal_secs = actual_secs = 0.0
    for each in measured:
        ratio, case = ratios[each.case.key], each.case
        runs = ratio.weight / ratio.modeled_secs
        if _is_bound_by_flops(case, known):
            ideal = case.flops / known.peak_flops
        else:
            ideal = case.touched_bytes / known.memory_bandwidth_bytes_per_sec
        ideal_secs += runs * ideal
        actual_secs += runs * max(ratio.measured_secs - launch_secs, 0.0)
    return ideal_secs / actual_secs if actual_secs > 0 else None


def _kind_row(
    kind: str,
    measured: Sequence[MeasuredCase],
    ratios: Mapping[str, Ratio],
    known: DeviceClass,
    fit: Fit,
) -> KindRow:
    of_kind = [ratios[each.case.key] for each in measured]
    values = sorted(ratio.value for ratio in of_kind)
    runs = [ratio.weight / ratio.modeled_secs for ratio in of_kind]
    summed = sum(n * ratio.measured_secs for n, ratio in zip(runs, of_kind, strict=True))
    weight = sum(ratio.weight for ratio in of_kind)
    large = [each for each in measured if _takes_longer_than_launch(each.case, known)]
    base = known.launch_secs if fit.launch_secs is None else fit.launch_secs
    return KindRow(
        kind=kind,
        cases=len(of_kind),
        weight=weight,
        overall=summed / weight if weight else statistics.median(values),
        median=statistics.median(values),
        low=values[len(values) // 10],
        high=values[-1 - len(values) // 10],
        worst=max(of_kind, key=lambda ratio: max(ratio.value, 1 / ratio.value)),
        reached=_reached(large, ratios, known, base),
    )


def _model_row(
    name: str, measured: Sequence[MeasuredCase], cases: Cases, known: DeviceClass, fit: Fit
) -> ModelRow:
    fitted = fit.applied(known)
    of_model = [(each, each.case.runs[name]) for each in measured if name in each.case.runs]

    def modeled(device: DeviceClass) -> float:
        return sum(
            n * modeled_secs(each.case.flops, each.case.touched_bytes, device)
            for each, n in of_model
        )

    # The file of cases knows the rest of the step only for the class that chose the cases.
    share_of_cases = modeled(known) / _modeled_totals(cases, known)[name]
    return ModelRow(
        name=name,
        covered=share_of_cases * cases.covered[name],
        modeled_secs=modeled(known),
        fitted_secs=modeled(fitted),
        measured_secs=sum(n * _preferred(each.secs) for each, n in of_model),
        cached_secs=sum(n * _preferred(each.cached_secs) for each, n in of_model),
        float32_secs=sum(n * each.secs[FLOAT32] for each, n in of_model),
        host_secs=sum(n * _preferred(each.host_secs) for each, n in of_model),
    )
