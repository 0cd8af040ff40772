"""How often a verdict is wrong, and how often it misses something, under every kind of noise.

Each figure counts simulated searches that end with a change: trials of all finalists, the choice
among them and the rounds that decide run on a `NoisyMachine`, by the code that runs live. Where all
finalists are as fast as the graph as it came, every change is a false alarm; where one is faster,
it is what should be found. Beside it stands the rule that tf_placer had before: nine measurements
at most, each of ten steps in processes of its own, and an interval by Student's t for every
finalist.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import math
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence

from benchmarks.harness.provenance import provenance
from benchmarks.live.noisy_machine import NOISE_MODELS, NoisyMachine
from tf_placer.environments.paired_steps import log_speedup
from tf_placer.live.confirmation import confirm
from tf_placer.text.table import table

__all__ = ["ended_with_change_before", "ends_with_change", "main"]

_ORIGINAL = "original"
_TRIAL_BLOCKS = 8
# Of the former rule: 97.5 % quantiles of Student's t after 2, 3, ..., 9 rounds.
_MOST_FORMER_ROUNDS = 9
_FORMER_THRESHOLDS = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306)
# Seconds for a confirmation that is to find nothing, and for one that is to find something.
_PLENTY_SECS, _POWER_SECS = 120.0, 60.0
_EQUAL = (1, 2, 4)
_SLOWER = 0.98
_FASTER = (1.1, 1.2)


def ends_with_change(
    model: str, speeds: Sequence[float], max_secs: float, seed: int
) -> tuple[bool, float]:
    """Runs a search on a noisy machine.

    Args:
        model: of the noise.
        speeds: of the finalists; the graph as it came has 1.
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


def ended_with_change_before(
    model: str, speeds: Sequence[float], max_secs: float, seed: int
) -> tuple[bool, float]:
    """Runs a confirmation as it was before; see `ends_with_change`."""
    machine = NoisyMachine(NOISE_MODELS[model], seed)
    labels = [_ORIGINAL, *(f"finalist {number}" for number in range(len(speeds)))]
    speed_of = dict(zip(labels, (1.0, *speeds), strict=True))
    logs: dict[str, list[float]] = {label: [] for label in labels[1:]}
    round_secs = 0.0
    for number in range(_MOST_FORMER_ROUNDS):
        if number >= 2 and machine.now_secs + round_secs > max_secs:
            break
        begin_secs = machine.now_secs
        machine.restart()
        shift = number // 2 % len(labels)
        order = labels[shift:] + labels[:shift]
        order = order[::-1] if number % 2 else order
        secs = {label: machine.measure_alone(label, speed_of[label]) for label in order}
        for label in logs:
            logs[label].append(math.log(secs[_ORIGINAL] / secs[label]))
        round_secs = machine.now_secs - begin_secs
    changed = any(
        statistics.fmean(values)
        > _FORMER_THRESHOLDS[len(values) - 2] * statistics.stdev(values) / math.sqrt(len(values))
        for values in logs.values()
    )
    return changed, machine.now_secs


def _share(
    pool: concurrent.futures.Executor,
    searches: int,
    rule: str,
    model: str,
    speeds: Sequence[float],
    max_secs: float,
) -> tuple[float, float]:
    """Computes the share of searches that end with a change, and the mean time that they took."""
    run = ends_with_change if rule == "now" else ended_with_change_before
    count = functools.partial(_count, run, model, tuple(speeds), max_secs)
    size = max(1, searches // 40)
    begins = range(0, searches, size)
    results = list(pool.map(count, begins, [min(size, searches - begin) for begin in begins]))
    return sum(r[0] for r in results) / searches, sum(r[1] for r in results) / searches


def _count(
    run: Callable[[str, Sequence[float], float, int], tuple[bool, float]],
    model: str,
    speeds: Sequence[float],
    max_secs: float,
    begin: int,
    count: int,
) -> tuple[int, float]:
    found = [run(model, speeds, max_secs, seed) for seed in range(begin, begin + count)]
    return sum(changed for changed, _ in found), sum(secs for _, secs in found)


def main() -> None:
    """Simulates the searches, prints both tables and writes them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--searches", type=int, default=10_000, help="per cell (default 10000)")
    parser.add_argument("--power_searches", type=int, default=2000, help="default 2000")
    parser.add_argument("--out_dir", default="benchmarks/results/verdict_rates")
    args = parser.parse_args()
    begin_secs = time.monotonic()
    alarms, power = [], []
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for model in NOISE_MODELS:
            row = [model]
            for rule in ("now", "before"):
                for speeds in [[1.0] * count for count in _EQUAL] + [[_SLOWER] * max(_EQUAL)]:
                    share, _ = _share(pool, args.searches, rule, model, speeds, _PLENTY_SECS)
                    row.append(f"{share:.2%}")
            alarms.append(row)
            row = [model]
            for speed in _FASTER:
                for rule in ("now", "before"):
                    share, secs = _share(
                        pool, args.power_searches, rule, model, [speed], _POWER_SECS
                    )
                    row.append(f"{share:.1%}")
                    if rule == "now":
                        row.append(f"{secs:.0f} s")
            power.append(row)
            print(f"{model}: {time.monotonic() - begin_secs:.0f} s", flush=True)
    equal = [f"{count} equal" for count in _EQUAL] + [f"{max(_EQUAL)} slower by 2 %"]
    of_speed = [
        text for speed in _FASTER for text in (f"{speed}x now", "it takes", f"{speed}x before")
    ]
    made_by = provenance()
    text = (
        f"command: python -m benchmarks.live.verdict_rates --searches {args.searches} "
        f"--power_searches {args.power_searches}\n"
        f"commit {made_by['commit']}, {made_by['processor']}, {made_by['cores']} cores\n\n"
        f"Changes where nothing is faster, of {args.searches} searches each with {_PLENTY_SECS:g} s"
        " to confirm; at most 2.5 % are allowed.\n\n"
        + table(["noise", *equal, *(f"{each}, before" for each in equal)], alarms, "l" + "r" * 8)
        + f"\n\nChanges where one finalist is faster, of {args.power_searches} searches each with "
        f"{_POWER_SECS:g} s to confirm.\n\n"
        + table(["noise", *of_speed], power, "l" + "r" * 6)
        + "\n"
    )
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.txt").write_text(text)
    print(f"\n{text}")


if __name__ == "__main__":
    main()
