"""Compares two measurements of the same placements on emulated GPUs with each other.

No simulator can be expected to agree better with TensorFlow's steps than these do with themselves.
Reads files that `benchmarks.simulator.emulated_agreement` wrote.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.harness.statistics import spearman
from tf_placer.files import read_json
from tf_placer.text.table import table

__all__ = ["compare_rounds", "main"]

_HEADERS = ["model", "machine", "rank correlation of steps", "correlation of errors"]


def compare_rounds(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[float, float]:
    """Compares two rounds of a pair of model and machine.

    Args:
        first: the pair as `emulated_agreement` writes it.
        second: the same pair and placements, measured again.

    Returns:
        The rank correlation of the measured steps, and the correlation of the relative errors of
        the simulator, over the placements that ran both times.
    """
    steps = [np.array(each["measured_secs"], np.float64) for each in (first, second)]
    ran = np.isfinite(steps[0]) & np.isfinite(steps[1])
    errors: list[np.ndarray] = [
        np.array(each["simulated_secs"])[ran] / secs[ran]
        for each, secs in zip((first, second), steps, strict=True)
    ]
    return spearman(steps[0][ran], steps[1][ran]), float(np.corrcoef(errors[0], errors[1])[0, 1])


def main() -> None:
    """Prints a line for each pair of the second file that is in the first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", help="placements.json of the first time")
    parser.add_argument("second", help="that of the second time")
    args = parser.parse_args()
    pairs = {(each["model"], each["machine"]): each for each in read_json(args.first)}
    rows = []
    for second in read_json(args.second):
        key = (second["model"], second["machine"])
        if key in pairs:
            rows.append([*key, *(f"{each:.3f}" for each in compare_rounds(pairs[key], second))])
    print(table(_HEADERS, rows, "llrr"))


if __name__ == "__main__":
    main()
