"""The table of training to the end."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.harness.statistics import ratio_and_interval
from benchmarks.harness.table_file import write_table
from benchmarks.live.training_curves import (
    EXPERT,
    FOUND,
    ORIGINAL,
    VARIANTS,
    Curve,
    Curves,
    Found,
)
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_step

__all__ = ["smooth_runs", "write_report"]

_SMOOTHED_BATCHES = 10
# The target is the loss of the original after this share of its steps.
_TARGET_SHARE = 0.75
_INTRODUCTION = f"""\
# Training to the end

Loss against wall time on `local:2`, for the original, as people place it, and as `optimize`
places it; for Inception-V3 also towers, a replica on each worker with half of each batch. All
placements of a run start from the same variables, read the same batches, and take turns in fresh
processes. Time starts when the first step has ended.

"time to loss" is when the mean of the last {_SMOOTHED_BATCHES} batches is as low as that of the
original at {_TARGET_SHARE:.0%} of its steps. What is saved is against the original of the same run,
with 95 % intervals over the runs. "search said" is what the confirmation of the search promised for
a step. "differs by" is the largest relative difference of a loss to that of the original in the
same step: it comes from the order in which numbers are added. Towers compute something else: each
normalizes its own part of a batch.
"""
_HEADERS = ["model", "placement", "runs", "time per batch", "saved", "search said"]
_HEADERS += ["time to loss", "saved", "differs by"]


def write_report(path: pathlib.Path, curves: Curves, found: Mapping[str, Found]) -> None:
    """Writes the table.

    Args:
        path: of the file.
        curves: all runs.
        found: what was found for each model.
    """
    models = list(dict.fromkeys(model for model, _, _ in curves))
    rows = [
        _row(model, variant, pairs, found.get(model))
        for model in models
        for variant in VARIANTS
        if (pairs := _pairs(curves, model, variant))
    ]
    table = markdown_table(_HEADERS, rows, "llrrrrrrr")
    unchanged = [f"- {name}: {each.reason}." for name, each in found.items() if not each.devices]
    write_table("\n".join([_INTRODUCTION, table, "", *unchanged]), path)


def smooth_runs(curves: Curves, model: str, variant: str) -> list[Curve]:
    """Lists the runs of a variant that have an original beside them, with smoothed losses."""
    return [
        Curve(curve.secs, tuple(_smooth(original, curve).tolist()))
        for original, curve in _pairs(curves, model, variant)
    ]


def _pairs(curves: Curves, model: str, variant: str) -> list[tuple[Curve, Curve]]:
    """Lists the runs of a variant behind the original of the same run, where there is one."""
    return [
        (curves[model, ORIGINAL, number], curve)
        for (name, kind, number), curve in curves.items()
        if (name, kind) == (model, variant) and (model, ORIGINAL, number) in curves
    ]


def _updates_per_batch(original: Curve, curve: Curve) -> int:
    return max(1, round(len(curve.losses) / len(original.losses)))


def _smooth(original: Curve, curve: Curve) -> np.ndarray:
    return curve.smooth(_SMOOTHED_BATCHES * _updates_per_batch(original, curve))


def _secs_per_batch(original: Curve, curve: Curve) -> float:
    return curve.secs[-1] / (len(curve.secs) - 1) * _updates_per_batch(original, curve)


def _secs_to_loss(original: Curve, curve: Curve) -> float | None:
    """Finds when a run has the loss that the original of the same run has late."""
    target = _smooth(original, original)[int(_TARGET_SHARE * len(original.losses)) - 1]
    updates = _SMOOTHED_BATCHES * _updates_per_batch(original, curve)
    return curve.secs_to(float(target), updates)


def _row(
    model: str, variant: str, pairs: Sequence[tuple[Curve, Curve]], found: Found | None
) -> list[str]:
    batch_secs = [_secs_per_batch(*pair) for pair in pairs]
    to_loss = [_secs_to_loss(*pair) for pair in pairs]
    saved_per_batch = saved_to_loss = differs = said = ""
    if variant != ORIGINAL:
        originals = [(original, original) for original, _ in pairs]
        saved_per_batch = _format_saving([_secs_per_batch(*pair) for pair in originals], batch_secs)
        saved_to_loss = _format_saving([_secs_to_loss(*pair) for pair in originals], to_loss)
    if variant == FOUND:
        said = _percent(found.speedup, found.interval) if found and found.speedup else "-"
    if variant in (EXPERT, FOUND):
        differs = f"{max(_difference(*pair) for pair in pairs):.1e}"
    return [
        model,
        variant,
        str(len(pairs)),
        format_step(float(np.median(batch_secs))),
        saved_per_batch,
        said,
        _mean_and_spread(to_loss),
        saved_to_loss,
        differs,
    ]


def _mean_and_spread(all_secs: Sequence[float | None]) -> str:
    secs = [each for each in all_secs if each is not None]
    if not secs:
        return "never"
    text = f"{np.mean(secs):.1f} s ({min(secs):.1f} to {max(secs):.1f})"
    never = len(all_secs) - len(secs)
    return f"{text}, {never} of {len(all_secs)} never" if never else text


def _format_saving(of_original: Sequence[float | None], secs: Sequence[float | None]) -> str:
    """Says how much less time it takes, run by run; nothing where a run never got there."""
    first, second = ([each for each in those if each] for those in (of_original, secs))
    if len(first) < len(of_original) or len(second) < len(secs):
        return "-"
    if len(first) == 1:
        return _percent(first[0] / second[0], None)
    return _percent(*ratio_and_interval(first, second))


def _percent(ratio: float, interval: Sequence[float] | None) -> str:
    """Formats what a ratio of times saves."""
    saved, *ends = (f"{1 - 1 / each:.1%}" for each in (ratio, *(interval or ())))
    return f"{saved} ({ends[0]} to {ends[1]})" if ends else saved


def _difference(original: Curve, curve: Curve) -> float:
    steps = min(len(original.losses), len(curve.losses))
    first, second = np.array(original.losses[:steps]), np.array(curve.losses[:steps])
    return float(np.max(np.abs(second - first) / np.abs(first)))
