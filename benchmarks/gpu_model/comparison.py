"""Measured operations beside what the analytic model says of them on a class of devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from benchmarks.gpu_model.cases import Case, Cases
from benchmarks.gpu_model.measurement import MeasuredCase
from tf_placer.machines.machine import DeviceClass

__all__ = ["Comparison", "modeled_secs"]

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


class Comparison:
    """Measured operations beside a class of the catalogue.

    Arrays have an element for each operation. Its measured seconds are those with inputs from
    memory, of contractions with TF32 where that was measured.

    Attributes:
        fitted: the class with the numbers that fit: the median of operations with hardly any work
            as its launch, and as its fractions what `_reached` computes of those that take longer,
            each only where such operations were measured.
    """

    def __init__(self, measured: Sequence[MeasuredCase], cases: Cases, known: DeviceClass) -> None:
        """Compares all operations.

        Args:
            measured: the operations.
            cases: the file of cases that they are of.
            known: the class.
        """
        self._measured, self._cases, self._known = measured, cases, known
        self._kinds = np.array([each.case.kind for each in measured])
        self._flops, self._bytes, self._runs = _work([each.case for each in measured], cases)
        self._secs = np.array([_preferred(each.secs) for each in measured])
        self._modeled = modeled_secs(self._flops, self._bytes, known)
        # The modeled steps include the cases that were not measured.
        flops, touched_bytes, runs = _work(cases.cases, cases)
        self._model_secs = modeled_secs(flops, touched_bytes, known) @ runs
        # Models are scaled to equal steps, so that each weighs the same.
        self._frequencies = (self._runs / self._model_secs).sum(axis=1)
        self._frequencies /= self._frequencies @ self._modeled
        work_secs = self._modeled - known.launch_secs
        self._is_large = work_secs > known.launch_secs
        by_flops = modeled_secs(self._flops, np.zeros_like(work_secs), known) >= modeled_secs(
            np.zeros_like(work_secs), self._bytes, known
        )
        self._ideal_secs = np.where(
            by_flops,
            self._flops / known.peak_flops,
            self._bytes / known.memory_bandwidth_bytes_per_sec,
        )
        small = self._secs[work_secs < _SMALL_SHARE * known.launch_secs]
        self._launch_secs = float(np.median(small)) if len(small) else known.launch_secs
        self.fitted = dataclasses.replace(
            known,
            compute_fraction=self._reached(by_flops) or known.compute_fraction,
            bandwidth_fraction=self._reached(~by_flops) or known.bandwidth_fraction,
            launch_secs=self._launch_secs,
        )

    def _reached(self, chosen: np.ndarray) -> float | None:
        """Computes the share of the peak, or of the bandwidth, that operations reach together.

        That is the work of those that take longer than a launch, divided by their seconds beyond a
        launch, so that with it the sum over all steps is what was measured; None if there are none.
        """
        runs = self._frequencies * (chosen & self._is_large)
        actual_secs = runs @ np.maximum(self._secs - self._launch_secs, 0.0)
        return float(runs @ self._ideal_secs / actual_secs) if actual_secs else None

    def kinds(self) -> list[dict[str, Any]]:
        """Compares the operations of each kind, the heaviest first.

        Returns:
            For each the name of the kind, how many operations it has, and their share of the
            measured operations' modeled time, all models alike. The sum of measured by the sum of
            modeled seconds, weighted; the quotients that half of them, the tenth part at most and
            the tenth part at least have. The share of the peak or bandwidth, whichever bounds it,
            that the work of those reaches which takes longer than a launch. And the operation that
            is farthest off, with its quotient.
        """
        rows = []
        for kind in dict.fromkeys(self._kinds):
            chosen = self._kinds == kind
            ratios = self._secs[chosen] / self._modeled[chosen]
            order, tenth = np.sort(ratios), len(ratios) // 10
            runs = self._frequencies[chosen]
            share = float(runs @ self._modeled[chosen])
            worst = int(np.argmax(np.maximum(ratios, 1 / ratios)))
            rows.append(
                {
                    "kind": str(kind),
                    "operations": len(ratios),
                    "of modeled time": share,
                    "sum": float(runs @ self._secs[chosen]) / share,
                    "median": float(np.median(ratios)),
                    "10 %": float(order[tenth]),
                    "90 %": float(order[-1 - tenth]),
                    "reached": self._reached(chosen),
                    "ratio": float(ratios[worst]),
                    "worst": self._measured[np.flatnonzero(chosen)[worst]],
                }
            )
        return sorted(rows, key=lambda row: -row["of modeled time"])

    def models(self) -> list[dict[str, Any]]:
        """Compares a step of each model: the sum of its operations, one after the other.

        Returns:
            For each its name and the share of its modeled step that was measured; and seconds: as
            the catalogue has them and as measured, without TF32, with inputs that caches may hold,
            until PyTorch's host has started all, and as modeled with the fitted numbers.
        """
        fitted_secs = modeled_secs(self._flops, self._bytes, self.fitted)
        rows = []
        for number, (name, covered) in enumerate(self._cases.covered.items()):
            runs = self._runs[:, number]
            if not runs.any():
                continue
            modeled = float(self._modeled @ runs)
            secs = {
                "modeled": modeled,
                "measured": self._secs @ runs,
                "without TF32": np.array([each.secs[_FLOAT32] for each in self._measured]) @ runs,
                "cached inputs": self._seconds("cached_secs") @ runs,
                "host": self._seconds("host_secs") @ runs,
                "fitted": fitted_secs @ runs,
            }
            # The file of cases knows the rest of the step only for the class that chose the cases.
            share = modeled / float(self._model_secs[number]) * covered
            rows.append({"model": name, "covered": share, **secs})
        return rows

    def _seconds(self, name: str) -> np.ndarray:
        return np.array([_preferred(getattr(each, name)) for each in self._measured])


def _preferred(secs: Mapping[str, float]) -> float:
    return secs.get(_TF32, secs[_FLOAT32])


def _work(of: Sequence[Case], cases: Cases) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lists flops and bytes of operations, and their runs, [operations, models]."""
    return (
        np.array([case.flops for case in of]),
        np.array([case.touched_bytes for case in of]),
        np.array([[case.runs.get(name, 0.0) for name in cases.covered] for case in of]),
    )
