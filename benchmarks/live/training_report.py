"""The table and the pictures of training to the end."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.harness.statistics import ratio_and_interval
from benchmarks.live.training_curves import (
    ASYNCHRONOUS,
    EXPERT,
    FOUND,
    ORIGINAL,
    SYNCHRONOUS,
    Curve,
    Curves,
    Found,
)
from benchmarks.live.training_picture import draw_training
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
_HEADERS = (
    "model",
    "placement",
    "runs",
    "time per batch",
    "saved",
    "search said",
    "last loss",
    "time to loss",
    "saved",
    "differs by",
)


def write_report(
    out: pathlib.Path, curves: Curves, found: Mapping[str, Found], made_by: Mapping[str, Any]
) -> str:
    """Writes the table and a picture.

    Args:
        out: the directory.
        curves: all runs.
        found: what was found for each model.
        made_by: what made the runs, as `provenance` gives it.

    Returns:
        The table and what it means, in Markdown.
    """
    models = list(dict.fromkeys(model for model, _, _ in curves))
    rows = [row for model in models for row in _rows(model, curves, found.get(model))]
    notes = [note for model in models for note in _notes(model, curves, found.get(model))]
    versions = ", ".join(f"{name} {version}" for name, version in made_by["versions"].items())
    text = "\n".join(
        [
            _INTRODUCTION,
            markdown_table(_HEADERS, rows, "llrrrrrrrr"),
            "",
            *notes,
            "",
            f"Made by `{made_by['command']}` at commit {made_by['commit'] or 'unknown'} with "
            f"{versions}, on {made_by['processor']}, {made_by['cores']} cores.",
        ]
    )
    (out / "training.md").write_text(text + "\n")
    _draw(out / "training.png", curves, models)
    return text


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


def _runs(curves: Curves, model: str, variant: str) -> dict[int, Curve]:
    """The runs of a variant that have an original beside them."""
    return {
        number: curve
        for (name, kind, number), curve in curves.items()
        if (name, kind) == (model, variant) and (model, ORIGINAL, number) in curves
    }


def _updates_per_batch(curve: Curve, original: Curve) -> int:
    return max(1, round(len(curve.losses) / len(original.losses)))


def _secs_per_batch(curve: Curve, original: Curve) -> float:
    updates = len(curve.secs) - 1
    return curve.secs[-1] / updates * _updates_per_batch(curve, original)


def _secs_to_loss(curve: Curve, original: Curve) -> float | None:
    """Finds when a run has the loss that the original of the same run has late."""
    target = original.smoothed(_SMOOTHED_BATCHES)[int(_TARGET_AT * len(original.losses)) - 1]
    updates = _SMOOTHED_BATCHES * _updates_per_batch(curve, original)
    return curve.secs_to(float(target), updates)


def _rows(model: str, curves: Curves, found: Found | None) -> list[list[str]]:
    originals = _runs(curves, model, ORIGINAL)
    rows = []
    for variant in (ORIGINAL, EXPERT, FOUND, SYNCHRONOUS, ASYNCHRONOUS):
        runs = _runs(curves, model, variant)
        if not runs:
            continue
        pairs = [(originals[number], curve) for number, curve in runs.items()]
        batch_secs = [_secs_per_batch(curve, original) for original, curve in pairs]
        last = [
            curve.smoothed(_SMOOTHED_BATCHES * _updates_per_batch(curve, original))[-1]
            for original, curve in pairs
        ]
        to_loss = [_secs_to_loss(curve, original) for original, curve in pairs]
        reached = [secs for secs in to_loss if secs is not None]
        of_original = [_secs_to_loss(original, original) for original, _ in pairs]
        same = variant in (EXPERT, FOUND)
        rows.append(
            [
                model,
                variant,
                str(len(runs)),
                format_step(float(np.median(batch_secs))),
                ""
                if variant == ORIGINAL
                else _saved([_secs_per_batch(each, each) for each, _ in pairs], batch_secs),
                _said(found) if variant == FOUND else "",
                f"{np.mean(last):.3f} ({min(last):.3f} to {max(last):.3f})",
                _mean_and_spread(reached, len(to_loss)),
                "" if variant == ORIGINAL else _saved(of_original, to_loss),
                f"{max(_difference(*pair) for pair in pairs):.1e}" if same else "",
            ]
        )
    return rows


def _said(found: Found | None) -> str:
    if found is None or found.speedup is None:
        return "-"
    if found.interval is None:
        return f"{1 - 1 / found.speedup:.1%}"
    low, high = found.interval
    return f"{1 - 1 / found.speedup:.1%} ({1 - 1 / low:.1%} to {1 - 1 / high:.1%})"


def _mean_and_spread(secs: Sequence[float], runs: int) -> str:
    if not secs:
        return "never"
    text = f"{np.mean(secs):.1f} s ({min(secs):.1f} to {max(secs):.1f})"
    return text if len(secs) == runs else f"{text}, {runs - len(secs)} of {runs} never"


def _saved(of_original: Sequence[float | None], secs: Sequence[float | None]) -> str:
    """Says how much less time it takes, run by run; nothing where a run never got there."""
    pairs = [(a, b) for a, b in zip(of_original, secs, strict=True) if a and b]
    if not pairs or len(pairs) < len(secs):
        return "-"
    first, second = zip(*pairs, strict=True)
    if len(pairs) == 1:
        return f"{1 - second[0] / first[0]:.1%}"
    ratio, (low, high) = ratio_and_interval(first, second)
    return f"{1 - 1 / ratio:.1%} ({1 - 1 / low:.1%} to {1 - 1 / high:.1%})"


def _difference(original: Curve, curve: Curve) -> float:
    steps = min(len(original.losses), len(curve.losses))
    first, second = np.array(original.losses[:steps]), np.array(curve.losses[:steps])
    return float(np.max(np.abs(second - first) / np.abs(first)))


def smoothed_runs(curves: Curves, model: str, variant: str) -> list[Curve]:
    """The runs of a variant that have an original beside them, with smoothed losses."""
    smooth = []
    for number, curve in _runs(curves, model, variant).items():
        updates = _updates_per_batch(curve, curves[model, ORIGINAL, number])
        losses = curve.smoothed(_SMOOTHED_BATCHES * updates)
        smooth.append(Curve(curve.secs, tuple(losses.tolist())))
    return smooth


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
        variants = (ORIGINAL, EXPERT, FOUND, SYNCHRONOUS, ASYNCHRONOUS)
        runs = {variant: smoothed_runs(curves, model, variant) for variant in variants}
        draw_training(row[0], runs, against="time")
        draw_training(row[1], runs, against="batches")
        row[0].set_title(model, fontsize=9, loc="left")
    save_picture(figure, path)
