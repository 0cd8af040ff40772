"""Learning curves of kept runs: the mean step of what was sampled, against samples and time."""

from __future__ import annotations

import dataclasses
import gzip
import json
import pathlib
from collections.abc import Sequence
from typing import Any

__all__ = ["Curve", "draw_curves", "read_curves"]


@dataclasses.dataclass(frozen=True)
class Curve:
    """How what a placer sampled became better.

    Attributes:
        model: of the catalogue.
        machine: that it was placed on, simulated.
        placer: with its options.
        samples: of each point, how many were sampled until then.
        secs: of each point, seconds of processor time until then.
        mean_secs: of each point, the mean step of the samples since the last one; None where none
            fitted.
        best: samples, seconds and step whenever there was a better one.
    """

    model: str
    machine: str
    placer: str
    samples: tuple[int, ...]
    secs: tuple[float, ...]
    mean_secs: tuple[float | None, ...]
    best: tuple[tuple[int, float, float], ...]


def read_curves(paths: Sequence[pathlib.Path]) -> list[Curve]:
    """Reads the runs that learn; of equal ones, that with seed 0 and the most samples.

    Args:
        paths: files with a run per line, compressed.

    Raises:
        OSError: a file cannot be read.
        KeyError, ValueError: a line is no run.
    """
    best: dict[tuple[str, str, str], Curve] = {}
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                value = json.loads(line)
                curve = _curve(value)
                if curve is None or value["key"]["seed"] != 0 or value["key"]["small"]:
                    continue
                key = curve.model, curve.machine, curve.placer
                if key not in best or len(curve.samples) > len(best[key].samples):
                    best[key] = curve
    return list(best.values())


def _curve(value: dict[str, Any]) -> Curve | None:
    key, found = value["key"], value.get("found")
    if not found or not found.get("mean_secs"):
        return None
    samples = tuple(
        min(found["window"] * (i + 1), found["samples"]) for i in range(len(found["mean_secs"]))
    )
    # A placer takes about as long for every sample.
    pace_secs = found["search_secs"] / max(found["samples"], 1)
    return Curve(
        key["model"],
        key["machine"],
        " ".join([key["placer"], *(f"{name}={option}" for name, option in key["options"])]),
        samples,
        tuple(each * pace_secs for each in samples),
        tuple(found["mean_secs"]),
        tuple((number, secs, step) for number, secs, step in found["curve"]),
    )


def draw_curves(panels: Sequence[Any], curves: Sequence[Curve], colours: Sequence[str]) -> None:
    """Draws curves against samples, and against time.

    Args:
        panels: two axes of matplotlib.
        curves: a line each: points are means of what was sampled, thin lines the best so far.
        colours: of the curves.
    """
    for axes, by_time in zip(panels, (False, True), strict=True):
        for curve, colour in zip(curves, colours, strict=False):
            x = curve.secs if by_time else curve.samples
            means = [float("nan") if mean is None else mean for mean in curve.mean_secs]
            axes.plot(x, means, marker=".", color=colour, label=curve.placer)
            if curve.best:
                numbers, secs, steps = zip(*curve.best, strict=True)
                at = secs if by_time else numbers
                axes.step(
                    [*at, max(x[-1], at[-1])], [*steps, steps[-1]], where="post", color=colour,
                    linewidth=0.8, linestyle=":",
                )  # fmt: skip
        axes.set_yscale("log")
        axes.set_xlabel("s of processor time" if by_time else "samples")
    for axes in panels:
        # Some placers sample a hundred times as fast as others.
        axes.set_xscale("log")
    panels[0].set_ylabel("s a step")
    panels[0].legend(fontsize=7)
