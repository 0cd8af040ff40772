"""The table of the log of a search: header, trials and outcome."""

from __future__ import annotations

import collections
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tf_placer.search.trial_log import Trial, best_trial
from tf_placer.text.table import table
from tf_placer.text.units import format_duration, format_step

__all__ = ["format_header", "format_trial", "log_table"]

_MAX_NOTE_WIDTH = 60
# Columns to leave out of short lines, the least important first.
_OPTIONAL = ("batch", "spread", "searching")
_MIN_VALUE_WIDTH, _MAX_VALUE_WIDTH = 20, 100


def log_table(
    header: Mapping[str, Any], trials: Sequence[Trial], *, width: int | None = None
) -> str:
    """Formats the log of a search: its header, a line for each trial, and the outcome.

    Args:
        header: the header of the log.
        trials: the trials of the log.
        width: maximum characters of a line of the table; None for no limit.
    """
    lines = format_header(header, width=width)
    if trials:
        best = best_trial(trials)
        original_secs = trials[0].measurement.median_secs
        rows = [_row(trial, original_secs, best) for trial in trials]
        headers = ["trial", "placer", "batch", "groups", "step", "spread", "speed-up", "searching"]
        lines += ["", table([*headers, "note"], rows, "rlrlrrrrl", width=width, optional=_OPTIONAL)]
    return "\n".join([*lines, "", _outcome(trials)])


def format_header(header: Mapping[str, Any], *, width: int | None = None) -> list[str]:
    """Formats the header of a log, a line for each field.

    Args:
        header: the header of the log.
        width: maximum characters of a line, to which long values are cut.
    """
    name_width = max((len(name) + 1 for name in header), default=0)
    most = _MAX_VALUE_WIDTH
    if width is not None:
        most = max(_MIN_VALUE_WIDTH, min(most, width - name_width - 2))
    return [
        f"{f'{name}:':{name_width}}  {_cut(_field(name, value), most)}".rstrip()
        for name, value in header.items()
    ]


def format_trial(trial: Trial, original_secs: float | None) -> str:
    """Formats the result of a trial on one line.

    Args:
        trial: the trial.
        original_secs: the step time of the original; None if it did not run.
    """
    cells = _row(trial, original_secs, None)
    step, spread, speedup, searching, note = (cells[column] for column in (4, 5, 6, 7, 8))
    parts = [f"{step} ± {spread}" if step else None, speedup, note, f"searching {searching}"]
    return f"trial {trial.index} {trial.placer}: " + " | ".join(part for part in parts if part)


def _row(trial: Trial, original_secs: float | None, best: Trial | None) -> list[str | None]:
    median_secs, spread_secs = trial.measurement.median_secs, trial.measurement.spread_secs
    speedup = original_secs / median_secs if original_secs and median_secs else None
    notes = []
    if trial.measurement.failure is not None:
        failure = trial.measurement.failure
        notes.append(_cut(f"{failure.kind.value}: {failure.message}", _MAX_NOTE_WIDTH))
    if trial.repeats is not None:
        notes.append(f"as trial {trial.repeats}")
    if best is not None and trial.index == best.index:
        notes.append("best")
    return [
        str(trial.index),
        trial.placer,
        str(trial.batch),
        _groups(trial),
        None if median_secs is None else format_step(median_secs),
        None if spread_secs is None else format_step(spread_secs),
        None if speedup is None else f"{speedup:.3f}x",
        format_duration(trial.elapsed_secs),
        ", ".join(notes),
    ]


def _groups(trial: Trial) -> str:
    """Formats the number of groups on each device: "12/0/8"."""
    if trial.assignment is None:
        return "original"
    counts = collections.Counter(trial.assignment)
    return "/".join(str(counts[device]) for device in range(max(counts, default=-1) + 1))


def _outcome(trials: Sequence[Trial]) -> str:
    best = best_trial(trials)
    if best is None or best.measurement.median_secs is None:
        text = f"{len(trials)} trials, none of which ran" if trials else "no trials"
    else:
        text = (
            f"{len(trials)} trials; best {format_step(best.measurement.median_secs)} "
            f"(trial {best.index}, {best.placer})"
        )
    repeats = sum(trial.repeats is not None for trial in trials)
    if repeats:
        text += f"; repeats: {repeats}"
    failures = collections.Counter(
        trial.measurement.failure.kind.value
        for trial in trials
        if trial.measurement.failure is not None
    )
    if failures:
        text += "; failures: " + ", ".join(f"{n} {kind}" for kind, n in failures.most_common())
    return text


def _field(name: str, value: Any) -> str:
    """Formats a field of the header."""
    if isinstance(value, str):
        return value
    if name == "machine" and isinstance(value, Mapping) and isinstance(value.get("spec"), str):
        return str(value["spec"])
    if isinstance(value, Mapping):
        return ", ".join(
            f"{key} {item if isinstance(item, str) else json.dumps(item)}"
            for key, item in value.items()
        )
    return json.dumps(value)


def _cut(text: str, width: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 3] + "..."
