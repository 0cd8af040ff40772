"""The table and the pictures of training to the end."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.harness.statistics import ratio_and_interval
from benchmarks.live.training_curves import (
    ASYNCHRONOUS,
    EXPERT,
    FOUND,
    ORIGINAL,
    SYNCHRONOUS,
    VARIANTS,
    Curve,
    Curves,
    Found,
)
from benchmarks.live.training_picture import draw_training
from benchmarks.table_file import write_table
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_duration, format_step

__all__ = ["crossing_secs", "smoothed_runs", "write_report"]

_SMOOTHED_BATCHES = 10
# Of the steps of the original; it has that loss then.
_TARGET_AT = 0.75
_INTRODUCTION = f"""\
# Training to the end

Loss against wall time on `local:2`, for the graph as it came, as people place it, and as `optimize`
places it; for Inception-V3 also towers, a replica on each worker with half of each batch. All
placements of a run start from the same variables, read the same batches, and take turns in fresh
processes. Time starts when the first step has ended.

"last loss" is the mean of the last {_SMOOTHED_BATCHES} batches, each before its update. "time to
loss" is when a run has the loss that the original has at {_TARGET_AT:.0%} of its steps. What is
saved is against the original of the same run, with 95 % intervals over the runs. "search said" is
what the confirmation of the search promised for a step. "differs by" is the largest relative
difference of a loss to that of the original in the same step: it comes from the order in which
numbers are added. Towers compute something else: each normalises its own part of a batch.
"""
_HEADERS = ["model", "placement", "runs", "time per batch", "saved", "search said", "last loss"]
_HEADERS += ["time to loss", "saved", "differs by"]


def write_report(out: pathlib.Path, curves: Curves, found: Mapping[str, Found]) -> None:
    """Writes the table and a picture.

    Args:
        out: the directory.
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
    notes = [note for model in models for note in _notes(model, curves, found.get(model))]
    table = markdown_table(_HEADERS, rows, "llrrrrrrrr")
    write_table("\n".join([_INTRODUCTION, table, "", *notes]), out / "training.md")
    _draw(out / "training.png", curves, models)


def smoothed_runs(curves: Curves, model: str, variant: str) -> list[Curve]:
    """Lists the runs of a variant that have an original beside them, with smoothed losses."""
    return [
        Curve(curve.secs, tuple(_smoothed(original, curve).tolist()))
        for original, curve in _pairs(curves, model, variant)
    ]


def crossing_secs(first: Sequence[Curve], second: Sequence[Curve]) -> float | None:
    """Finds from when on training has the lower mean loss, for good.

    Args:
        first: runs of one kind, smoothed.
        second: runs of another, smoothed.

    Returns:
        The time; 0 if the first kind is ahead all the time, None if it is behind at the end of the
        shortest run.
    """
    end_secs = min(curve.secs[-1] for curve in [*first, *second])
    times = np.linspace(0.0, end_secs, 1000)
    means = [
        np.mean([np.interp(times, curve.secs, curve.losses) for curve in curves], axis=0)
        for curves in (first, second)
    ]
    behind = np.flatnonzero(means[0] > means[1])
    if not len(behind):
        return 0.0
    return None if behind[-1] == len(times) - 1 else float(times[behind[-1] + 1])


def _pairs(curves: Curves, model: str, variant: str) -> list[tuple[Curve, Curve]]:
    """Lists the runs of a variant behind the original of the same run, where there is one."""
    return [
        (curves[model, ORIGINAL, number], curve)
        for (name, kind, number), curve in curves.items()
        if (name, kind) == (model, variant) and (model, ORIGINAL, number) in curves
    ]


def _updates_per_batch(original: Curve, curve: Curve) -> int:
    return max(1, round(len(curve.losses) / len(original.losses)))


def _smoothed(original: Curve, curve: Curve) -> np.ndarray:
    return curve.smoothed(_SMOOTHED_BATCHES * _updates_per_batch(original, curve))


def _secs_per_batch(original: Curve, curve: Curve) -> float:
    return curve.secs[-1] / (len(curve.secs) - 1) * _updates_per_batch(original, curve)


def _secs_to_loss(original: Curve, curve: Curve) -> float | None:
    """Finds when a run has the loss that the original of the same run has late."""
    target = _smoothed(original, original)[int(_TARGET_AT * len(original.losses)) - 1]
    updates = _SMOOTHED_BATCHES * _updates_per_batch(original, curve)
    return curve.secs_to(float(target), updates)


def _row(
    model: str, variant: str, pairs: Sequence[tuple[Curve, Curve]], found: Found | None
) -> list[str]:
    batch_secs = [_secs_per_batch(*pair) for pair in pairs]
    to_loss = [_secs_to_loss(*pair) for pair in pairs]
    last = [_smoothed(*pair)[-1] for pair in pairs]
    saved_per_batch = saved_to_loss = differs = said = ""
    if variant != ORIGINAL:
        originals = [(original, original) for original, _ in pairs]
        saved_per_batch = _saved([_secs_per_batch(*pair) for pair in originals], batch_secs)
        saved_to_loss = _saved([_secs_to_loss(*pair) for pair in originals], to_loss)
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
        f"{np.mean(last):.3f} ({min(last):.3f} to {max(last):.3f})",
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


def _saved(of_original: Sequence[float | None], secs: Sequence[float | None]) -> str:
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


def _notes(model: str, curves: Curves, found: Found | None) -> list[str]:
    """Says what was not found, and when others overtake asynchronous towers."""
    notes = [] if found is None or found.devices else [f"- {model}: {found.reason}."]
    asynchronous = smoothed_runs(curves, model, ASYNCHRONOUS)
    for variant in (ORIGINAL, FOUND, SYNCHRONOUS) if asynchronous else ():
        runs = smoothed_runs(curves, model, variant)
        if not runs:
            continue
        secs = crossing_secs(runs, asynchronous)
        what = {0.0: "has the lower loss all the time", None: "has the higher loss at the end"}.get(
            secs, f"has the lower loss from {format_duration(secs or 0.0)} on"
        )
        notes.append(f"- {model}: against asynchronous towers, {variant} {what}.")
    return notes


def _draw(path: pathlib.Path, curves: Curves, models: Sequence[str]) -> None:
    """Draws loss against time and against batches, a row per model; says so without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return
    from benchmarks.harness.pictures import save_picture

    figure = Figure(figsize=(11, 3.2 * len(models)), layout="constrained")
    for row, model in zip(figure.subplots(len(models), 2, squeeze=False), models, strict=True):
        runs = {variant: smoothed_runs(curves, model, variant) for variant in VARIANTS}
        draw_training(row[0], runs, against="time")
        draw_training(row[1], runs, against="batches")
        row[0].set_title(model, fontsize=9, loc="left")
    save_picture(figure, path)
