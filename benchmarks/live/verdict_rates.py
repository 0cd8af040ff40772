"""Error rates of verdicts, false and missed ones, under every kind of noise.

Each figure counts simulated searches that end with a change: trials of all finalists, the choice
among them and the rounds that decide run on a `NoisyMachine`, by the code that runs live. Where all
finalists are as fast as the original, every change is a false alarm; where one is faster,
it is what should be found.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import os
import pathlib
import statistics
from collections.abc import Sequence

from benchmarks.harness.table_file import write_table
from benchmarks.live.noisy_machine import NOISE_MODELS, NoisyMachine
from tf_placer.confirmation.confirmation import confirm
from tf_placer.environments.paired_steps import log_speedup
from tf_placer.text.table import table

__all__ = ["ends_with_change", "main"]

_ORIGINAL = "original"
_TRIAL_BLOCKS = 8
# Seconds for a confirmation that is to find nothing, and for one that is to find something.
_PLENTY_SECS, _POWER_SECS = 120.0, 60.0
_EQUAL = {f"{count} equal": [1.0] * count for count in (1, 2, 4)} | {"4 slower by 2 %": [0.98] * 4}
_FASTER = (1.1, 1.2)


def ends_with_change(
    model: str, speeds: Sequence[float], max_secs: float, seed: int
) -> tuple[bool, float]:
    """Runs a search on a noisy machine.

    Args:
        model: of the noise.
        speeds: of the finalists; the original has 1.
        max_secs: seconds of the confirmation.
        seed: of the noise.

    Returns:
        Whether it ends with a change, and what the confirmation took in seconds.
    """
    machine = NoisyMachine(NOISE_MODELS[model], seed)
    candidates: dict[str, dict[str, str]] = {_ORIGINAL: {}} | {
        f"finalist {number}": {"speed": str(speed)} for number, speed in enumerate(speeds)
    }
    hints = {label: _trial(machine, devices) for label, devices in candidates.items() if devices}
    begin_secs = machine.now_secs
    found = confirm(
        machine,
        candidates,
        _ORIGINAL,
        hints=hints,
        max_secs=max_secs,
        seed=seed,
        clock=machine.clock,
    )
    changed = any(comparison.faster for comparison in found.comparisons.values())
    return changed, machine.now_secs - begin_secs


def _trial(machine: NoisyMachine, devices: dict[str, str]) -> float:
    """Measures what a trial says of a finalist: the logarithm of its speed-up."""
    if _ORIGINAL not in machine.open_labels:
        machine.restart()
        machine.open_session(_ORIGINAL, {})
    machine.open_session("candidate", devices)
    secs: dict[str, list[float]] = {_ORIGINAL: [], "candidate": []}
    for block in range(_TRIAL_BLOCKS):
        for label in sorted(secs, reverse=block % 2 == 0):
            secs[label] += machine.run_steps(label, 1)
    return log_speedup(secs[_ORIGINAL], secs["candidate"])[0]


def _rates(
    pool: concurrent.futures.Executor,
    searches: int,
    model: str,
    speeds: Sequence[float],
    max_secs: float,
) -> tuple[float, float]:
    """Computes the share of searches that end with a change, and the mean time that they took."""
    search = functools.partial(ends_with_change, model, speeds, max_secs)
    ends = list(pool.map(search, range(searches), chunksize=max(1, searches // 40)))
    return statistics.fmean(end[0] for end in ends), statistics.fmean(end[1] for end in ends)


def main() -> None:
    """Simulates the searches and writes both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--searches", type=int, default=10_000, help="per cell (default 10000)")
    parser.add_argument("--power_searches", type=int, default=2000, help="default 2000")
    parser.add_argument("--out_dir", default="benchmarks/results/verdict_rates")
    args = parser.parse_args()
    alarms, power = [], []
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for model in NOISE_MODELS:
            alarms.append([model])
            for speeds in _EQUAL.values():
                share, _ = _rates(pool, args.searches, model, speeds, _PLENTY_SECS)
                alarms[-1].append(f"{share:.2%}")
            power.append([model])
            for speed in _FASTER:
                share, secs = _rates(pool, args.power_searches, model, [speed], _POWER_SECS)
                power[-1] += [f"{share:.1%}", f"{secs:.0f} s"]
            print(*alarms[-1], *power[-1][1:], flush=True)
    faster = [text for speed in _FASTER for text in (f"{speed}x", "it takes")]
    write_table(
        f"Changes where nothing is faster, of {args.searches} searches each with {_PLENTY_SECS:g} s"
        " to confirm; at most 2.5 % are allowed.\n\n"
        + table(["noise", *_EQUAL], alarms, "lrrrr")
        + f"\n\nChanges where one finalist is faster, of {args.power_searches} searches each with "
        f"{_POWER_SECS:g} s to confirm.\n\n" + table(["noise", *faster], power, "lrrrr"),
        pathlib.Path(args.out_dir, "table.txt"),
    )


if __name__ == "__main__":
    main()
