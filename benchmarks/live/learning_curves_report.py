"""The kept runs, the page and the pictures of learning curves, live beside simulated."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import os
import pathlib
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.harness.pictures import save_picture
from benchmarks.harness.statistics import spearman
from benchmarks.harness.table_file import write_table
from tf_placer.files import write_bytes
from tf_placer.report.colors import DEVICE_COLORS
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_step

__all__ = ["KeptCurves", "LearningRun", "draw_pictures", "write_report"]

_TENTHS = 10
# Curves agree if what was learned differs by at most this factor.
_AGREEMENT = 1.1
_HEADERS = ["machine", "model", "system", "samples", "failures", "failures simulated"]
_HEADERS += [
    "one GPU",
    "one GPU simulated",
    "best",
    "the same simulated",
    "best of the simulated search",
]
_HEADERS += ["live / simulated", "rank correlation", "tenths apart"]
_HEADERS += ["learned", "learned simulated", "agree", "s a sample"]
_INTRODUCTION = f"""\
# Learning curves, live and simulated

Systems of the papers sample placements of models on emulated GPUs, in TensorFlow's runtime. A
sample is measured alone in a session: 15 steps of which 5 are dropped for EAGLE, 11 and 1 for Post,
10 and 1 for ColocRL, and likewise for systems whose papers print no protocol; its step is the
median. Each system begins as in its paper, at no placement. Samples are placements on the GPUs,
because the CPU of an emulated machine is that of the computer that measures.

Two things are simulated: the same placements ("same"), and a search of its own with the same seed
("search"), which samples the same at first, until it has learned from other figures. A placement
that was sampled before is not measured again. Means are of what ran. The memory that a failed
sample lacks is known in simulation only, so failures teach more there.

- "failures": samples that did not run, live and simulated for the same placements.
- "one GPU": everything on the first one.
- "best": the fastest sample; the same placement simulated; the fastest of the simulated search.
- "live / simulated": the median of ratios of the same placements, with their rank correlation.
- "tenths apart": the median difference of the mean steps of a tenth of the run, same placements.
- "learned": the mean step of the last tenth by that of the first; the curves agree if live and
  simulated search differ by at most {_AGREEMENT - 1:.0%}.
"""


@dataclasses.dataclass(frozen=True)
class LearningRun:
    """The samples of a system, in their order.

    Attributes:
        model: of the catalog.
        machine: the emulated machine.
        system: the learned placer.
        protocol: the measuring protocol of a sample.
        seed: of the system.
        wanted: the samples that the run is to have in the end.
        one_gpu_secs: seconds of a step with everything on one GPU; None if it fails.
        simulated_one_gpu_secs: the same in simulation.
        live_secs: seconds of a step of each sample; None for one that failed.
        simulated_secs: those of the same placements in simulation.
        searched_secs: those of the samples of the simulated search.
        measured: samples that were measured; all others repeat one of these.
        elapsed_secs: seconds of sampling live.
    """

    model: str
    machine: str
    system: str
    protocol: str
    seed: int
    wanted: int
    one_gpu_secs: float | None
    simulated_one_gpu_secs: float | None
    live_secs: Sequence[float | None]
    simulated_secs: Sequence[float | None]
    searched_secs: Sequence[float | None]
    measured: int
    elapsed_secs: float

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """The identity of the run."""
        return self.machine, self.model, self.system, self.wanted, self.seed


class KeptCurves:
    """The runs of a file.

    Attributes:
        path: the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Reads the runs; none if there is no file.

        Raises:
            OSError: the file cannot be read, or is not compressed.
            ValueError: the file has no runs of this format.
        """
        self.path = pathlib.Path(path)
        values = json.loads(gzip.decompress(self.path.read_bytes())) if self.path.exists() else []
        try:
            runs = [LearningRun(**value) for value in values]
        except TypeError as error:
            raise ValueError(
                f"{path} has no runs of this version ({error}): move it away"
            ) from None
        self._runs = {run.key: run for run in runs}

    @property
    def runs(self) -> list[LearningRun]:
        """All runs."""
        return list(self._runs.values())

    def add(self, run: LearningRun) -> None:
        """Keeps a run, unless a longer one of the same is kept."""
        kept = self._runs.get(run.key)
        if kept is not None and len(kept.live_secs) > len(run.live_secs):
            return
        self._runs[run.key] = run
        content = json.dumps([dataclasses.asdict(each) for each in self.runs], allow_nan=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Without the time of writing, so that the same runs are the same bytes.
        write_bytes(self.path, gzip.compress(content.encode(), mtime=0))


def write_report(path: pathlib.Path, runs: Sequence[LearningRun]) -> None:
    """Writes the page: a line for each run, and the mean step of each tenth of a run."""
    lines = markdown_table(_HEADERS, [_row(run) for run in runs], "lll" + "r" * 13 + "lr")
    tenths = [row for run in runs for row in _tenth_rows(run)]
    columns = ["machine", "model", "system", "curve", *map(str, range(1, _TENTHS + 1))]
    curves = markdown_table(columns, tenths, "llll" + "r" * _TENTHS)
    text = "Mean step in seconds of each tenth of a run:"
    write_table("\n".join([_INTRODUCTION, lines, "", text, "", curves]), path)


def draw_pictures(folder: pathlib.Path, runs: Sequence[LearningRun]) -> Iterator[pathlib.Path]:
    """Draws a picture for each machine, with a panel live and one simulated for each model."""
    from matplotlib.figure import Figure

    for machine in dict.fromkeys(run.machine for run in runs):
        shown = [run for run in runs if run.machine == machine]
        models = list(dict.fromkeys(run.model for run in shown))
        systems = list(dict.fromkeys(run.system for run in shown))
        figure = Figure(figsize=(11, 3.2 * len(models) + 0.4), layout="constrained")
        panels = figure.subplots(len(models), 2, squeeze=False, sharey="row")
        for row, model in zip(panels, models, strict=True):
            for run in shown:
                if run.model == model:
                    color = DEVICE_COLORS[systems.index(run.system) % len(DEVICE_COLORS)]
                    _draw_curve(row[0], run.system, run.live_secs, color)
                    _draw_curve(row[1], run.system, run.searched_secs, color)
            for axes, where in zip(row, ("in TensorFlow", "simulated"), strict=True):
                axes.set_title(f"{model} on {machine}, {where}", fontsize=9, loc="left")
                axes.set_xlabel("samples")
                axes.grid(alpha=0.25)
            row[0].set_ylabel("s a step")
            row[0].legend(fontsize=7)
        path = folder / f"curves-{machine.partition(':')[2].replace(',', '-')}.png"
        save_picture(figure, path)
        yield path


def _draw_curve(axes: Any, label: str, secs: Sequence[float | None], color: str) -> None:
    """Draws the mean step of each tenth, and the fastest step until then."""
    ends = [int(part[-1]) + 1 for part in _split(len(secs)) if len(part)]
    means = [math.nan if mean is None else mean for mean in _average_tenths(_to_array(secs))][
        : len(ends)
    ]
    axes.plot(ends, means, marker=".", color=color, label=label)
    best = np.fmin.accumulate(_to_array(secs))
    axes.step(
        np.arange(1, len(secs) + 1), best, where="post", color=color, linewidth=0.8, linestyle=":"
    )


def _split(count: int) -> list[np.ndarray]:
    """Splits the numbers of samples into tenths; some are empty if there are fewer."""
    return np.array_split(np.arange(count), _TENTHS)


def _to_array(secs: Sequence[float | None]) -> np.ndarray:
    return np.array([math.nan if each is None else each for each in secs], np.float64)


def _average_tenths(secs: np.ndarray) -> list[float | None]:
    """Computes the mean step of each tenth of what ran; None where nothing did."""
    tenths = [secs[part][np.isfinite(secs[part])] for part in _split(len(secs))]
    return [float(part.mean()) if len(part) else None for part in tenths]


def _compute_learned(secs: Sequence[float | None]) -> float | None:
    """Computes the mean step of the last tenth by that of the first; None if one is not known."""
    tenths = [
        mean
        for mean, part in zip(_average_tenths(_to_array(secs)), _split(len(secs)), strict=True)
        if len(part)
    ]
    if len(tenths) < 2 or tenths[0] is None or tenths[-1] is None:
        return None
    return tenths[-1] / tenths[0]


def _row(run: LearningRun) -> list[str]:
    live, same = _to_array(run.live_secs), _to_array(run.simulated_secs)
    searched = _to_array(run.searched_secs)
    both = np.isfinite(live) & np.isfinite(same)
    best = best_same = ratio = correlation = apart = agree = ""
    if np.isfinite(live).any():
        number = int(np.nanargmin(live))
        best = format_step(float(live[number]))
        fits = np.isfinite(same[number])
        best_same = format_step(float(same[number])) if fits else "does not fit"
    if both.any():
        ratio = f"{np.median(live[both] / same[both]):.3f}"
        rank = spearman(live[both], same[both])
        correlation = "" if math.isnan(rank) else f"{rank:.3f}"
        curves = (_average_tenths(np.where(both, secs, math.nan)) for secs in (live, same))
        known = [first / second for first, second in zip(*curves, strict=True) if first and second]
        apart = f"{statistics.median(abs(each - 1) for each in known):.1%}"
    learned = [_compute_learned(secs) for secs in (run.live_secs, run.searched_secs)]
    if learned[0] is not None and learned[1] is not None:
        difference = abs(math.log(learned[0] / learned[1]))
        agree = "yes" if difference <= math.log(_AGREEMENT) else "no"
    samples = len(live)
    return [
        run.machine,
        run.model,
        run.system,
        str(samples) if samples == run.wanted else f"{samples} of {run.wanted}",
        str(int(np.isnan(live).sum())),
        str(int(np.isnan(same).sum())),
        *(
            "fails" if secs is None else format_step(secs)
            for secs in (run.one_gpu_secs, run.simulated_one_gpu_secs)
        ),
        best,
        best_same,
        format_step(float(np.nanmin(searched))) if np.isfinite(searched).any() else "",
        ratio,
        correlation,
        apart,
        *("" if each is None else f"{each:.2f}x" for each in learned),
        agree,
        f"{run.elapsed_secs / run.measured:.1f}",
    ]


def _tenth_rows(run: LearningRun) -> list[list[str]]:
    curves = {
        "live": run.live_secs,
        "same, simulated": run.simulated_secs,
        "search, simulated": run.searched_secs,
    }
    return [
        [
            run.machine,
            run.model,
            run.system,
            name,
            *("" if mean is None else f"{mean:.3f}" for mean in _average_tenths(_to_array(secs))),
        ]
        for name, secs in curves.items()
    ]
