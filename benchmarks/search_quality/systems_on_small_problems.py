"""Every learned placer on problems whose fastest placement is known, beside random search.

Each system searches each of `SMALL_PROBLEMS` with several seeds, until it samples one of the
fastest of all placements or has had `MAX_SAMPLES`. The networks are small, because the problems
are; `SETTINGS` is all else that differs from the papers, the same on every problem, and was chosen
with seeds from 100. What has run is kept in `--out_dir`, so the benchmark goes on where it stopped.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import csv
import dataclasses
import itertools
import multiprocessing
import os
import pathlib
import time
from collections.abc import Mapping, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.problems.small import SMALL_PROBLEMS, all_step_secs, is_optimal
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.placers import describe_placer, make_placer
from tf_placer.placers.systems import SYSTEMS
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.search.proposals import Measured, propose_and_observe
from tf_placer.text.table import table
from tf_placer.text.units import format_duration

__all__ = ["MAX_SAMPLES", "SETTINGS", "Search", "main", "search"]

MAX_SAMPLES = 2000

# A handful of operations needs no 512 units.
_SMALL_NETWORK: dict[str, object] = {
    "hidden_units": 32,
    "attention_units": 32,
    "device_units": 8,
    "type_units": 8,
    "grouper_units": 16,
    "bridge_units": 8,
    "graph_units": 32,
}
# Steps differ by tenths of a second here, by seconds in the papers: hence advantages in deviations.
# At a rate of 1e-4 small networks still sample like random search after 1200 samples.
_SCALED: dict[str, object] = {"baseline": "batch", "normalise": True, "learning_rate": 3e-3}
# Such advantages do not shrink while the policy settles. At 0.1 it does so within 700 samples, on a
# local optimum of the heterogeneous devices.
_PPO: dict[str, object] = _SCALED | {"entropy_coefficient": 0.5}
# REINFORCE sums its gain over up to eight decisions; PPO, like the entropy, is a mean over them.
_REINFORCE: dict[str, object] = _SCALED | {"entropy_coefficient": 3.0}
# There is no entropy bonus here. In larger steps, or from batches of 12, it settles like that, too.
_SPOTLIGHT: dict[str, object] = _SCALED | {"divergence_target": 0.001, "batch_size": 48}
# Nor here; at 1.0, and even at 0.05 on the two chains, the softmax settles within 700 samples.
_POST: dict[str, object] = _SCALED | {"learning_rate": 0.03}
# No placement that fits takes longer. Beside failures of 100 s all that fit would look alike.
_PENALTY: dict[str, object] = {"penalty_secs": 3.0}
# The untrained grouper puts most operations into one group; at 3e-3 it takes 1000 samples to change
# that. The 256 groups of the papers would be one for each operation.
_LEARNED_GROUPS: dict[str, object] = {"num_groups": 4, "learning_rate": 0.01} | _PENALTY
# Random groups hide what devices are worth: at 3.0 REINFORCE learned next to nothing.
_LEARNED_GROUPS_PPO: dict[str, object] = _PPO | _LEARNED_GROUPS | {"entropy_coefficient": 0.3}
_LEARNED_GROUPS_REINFORCE: dict[str, object] = (
    _REINFORCE | _LEARNED_GROUPS | {"entropy_coefficient": 1.5}
)
# Six elites of 60 agree too soon, and what all of them have in common is kept for good.
_CE: dict[str, object] = {"ce_samples": 120, "exploration": 0.5} | _PENALTY

SETTINGS: Mapping[str, Mapping[str, object]] = {
    "colocrl": _REINFORCE,
    "policy_gradient": _REINFORCE,
    "hierarchical": _LEARNED_GROUPS_REINFORCE,
    "spotlight": _SPOTLIGHT,
    "post": _POST | _CE,
    "post_ppo": _POST | _PENALTY,
    "post_ce": _CE,
    "eagle": _LEARNED_GROUPS_PPO,
    "eagle_ppo_ce": _LEARNED_GROUPS_PPO,
    "eagle_reinforce": _LEARNED_GROUPS_REINFORCE,
    "eagle_metis": _PPO | _PENALTY,
    "eagle_fluid": _PPO | _PENALTY,
    "eagle_gcn": _PPO | _PENALTY,
    # As it is, it settles within a hundred samples.
    "warm_softmax": {"learning_rate": 0.03, "start_uniform": 0.5, "entropy_coefficient": 0.1},
    "graph_neural": _PPO,
}
"""What differs from the settings of the system, apart from the size of its network."""

_SEARCHES_CSV = "searches.csv"


@dataclasses.dataclass(frozen=True)
class Search:
    """What one search came to.

    Attributes:
        problem: name of the problem.
        placer: name of the placer.
        seed: of the placer.
        samples: placements simulated.
        samples_to_optimum: until the first of the fastest placements, that one included; None if
            there was none.
        best_ratio: the fastest step that was sampled by the fastest of all; infinite if nothing
            fitted.
    """

    problem: str
    placer: str
    seed: int
    samples: int
    samples_to_optimum: int | None
    best_ratio: float


def search(
    problem_name: str,
    placer_name: str,
    seed: int,
    *,
    max_samples: int = MAX_SAMPLES,
    until_optimal: bool = True,
) -> tuple[Search, np.ndarray]:
    """Searches one problem with one placer.

    Args:
        problem_name: one of `SMALL_PROBLEMS`.
        placer_name: one of the placers.
        seed: of the placer.
        max_samples: placements to simulate at most.
        until_optimal: whether to end with the batch that has one of the fastest placements.

    Returns:
        What it came to, and float64 [samples], the step times of what was sampled, infinite for
        what did not fit.
    """
    problem = SMALL_PROBLEMS[problem_name]
    fastest_secs = all_step_secs(problem)[0]
    groups = group_graph(problem)
    placer = make_placer(
        placer_name,
        groups,
        legal_devices(problem),
        seed=seed,
        options=_options(placer_name),
        problem=problem,
    )
    environment = SimulatedEnvironment(problem, threads=1)
    sampled: list[float] = []

    def count() -> int:
        return min(placer.batch_size, max_samples - len(sampled))

    def measure(placements: np.ndarray) -> Measured | None:
        measurements = environment.measure(placements)
        secs = [m.median_secs for m in measurements]
        sampled.extend(np.inf if value is None else value for value in secs)
        if until_optimal and is_optimal(np.array(sampled), fastest_secs).any():
            return None
        return placements, measurements

    for _ in propose_and_observe(placer, count, measure):
        pass
    step_secs = np.array(sampled)
    optimal = np.flatnonzero(is_optimal(step_secs, fastest_secs))
    outcome = Search(
        problem_name,
        placer_name,
        seed,
        samples=len(step_secs),
        samples_to_optimum=int(optimal[0]) + 1 if len(optimal) else None,
        best_ratio=round(float(step_secs.min() / fastest_secs), 4),
    )
    return outcome, step_secs


def _options(placer_name: str) -> dict[str, object]:
    """Adds the small network to `SETTINGS` where the system has such a setting and uses it."""
    settings = {setting.name: setting.value for setting in describe_placer(placer_name).settings}
    small = {name: value for name, value in _SMALL_NETWORK.items() if settings.get(name)}
    return {**small, **SETTINGS.get(placer_name, {})}


def _read(path: pathlib.Path) -> list[Search]:
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return [
            Search(
                row["problem"],
                row["placer"],
                int(row["seed"]),
                int(row["samples"]),
                int(row["samples_to_optimum"]) if row["samples_to_optimum"] else None,
                float(row["best_ratio"]),
            )
            for row in csv.DictReader(file)
        ]


def _write(path: pathlib.Path, searches: Sequence[Search]) -> None:
    temporary = path.with_suffix(".tmp")
    with open(temporary, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in dataclasses.fields(Search)])
        writer.writerows(map(dataclasses.astuple, searches))
    os.replace(temporary, path)


def _run_all(args: argparse.Namespace) -> list[Search]:
    """Runs what is missing, seed by seed, `--jobs` at a time."""
    path = pathlib.Path(args.out_dir, _SEARCHES_CSV)
    path.parent.mkdir(parents=True, exist_ok=True)
    searches = _read(path)
    done = {(each.problem, each.placer, each.seed) for each in searches}
    order = [
        (problem, placer, seed)
        for seed, placer, problem in itertools.product(
            range(args.seeds), ["random", *SYSTEMS], SMALL_PROBLEMS
        )
    ]
    wanted = [each for each in order if each not in done]
    start = time.monotonic()
    context = multiprocessing.get_context("spawn")
    # Searches are short, and the machine is full with one thread each.
    with concurrent.futures.ProcessPoolExecutor(
        args.jobs, mp_context=context, initializer=_use_one_thread
    ) as pool:
        futures = [pool.submit(search, *each) for each in wanted]
        for number, future in enumerate(concurrent.futures.as_completed(futures), 1):
            found, _ = future.result()
            searches.append(found)
            searches.sort(key=lambda each: order.index((each.problem, each.placer, each.seed)))
            _write(path, searches)
            eta_secs = (time.monotonic() - start) / number * (len(futures) - number)
            samples = found.samples_to_optimum or f"not in {found.samples}"
            print(
                f"[{number}/{len(futures)}] {found.placer} on {found.problem} "
                f"(seed {found.seed}): {samples} | {format_duration(eta_secs)} left",
                flush=True,
            )
    return searches


def _use_one_thread() -> None:
    for variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ[variable] = "1"


def _report(searches: Sequence[Search]) -> str:
    """Formats the problems, and a line per placer with a cell per problem."""
    problem_rows = []
    for name, problem in SMALL_PROBLEMS.items():
        secs = all_step_secs(problem)
        optimal = int(is_optimal(secs, secs[0]).sum())
        # Drawn with replacement, the first of the fastest comes after this many on average.
        problem_rows.append([name, len(secs), optimal, f"{len(secs) / optimal:.0f}"])
    problems = table(["problem", "placements", "fastest", "random needs"], problem_rows, "lrrr")
    rows = []
    for placer in ["random", *SYSTEMS]:
        own = [each for each in searches if each.placer == placer]
        cells = [_cell([each for each in own if each.problem == name]) for name in SMALL_PROBLEMS]
        reached = sum(each.samples_to_optimum is not None for each in own)
        rows.append([placer, *cells, f"{reached} of {len(own)}"])
    names = ["placer", *SMALL_PROBLEMS, "reached"]
    systems = table(names, rows, "l" + "r" * (len(names) - 1))
    seeds = len({each.seed for each in searches})
    return (
        f"{problems}\n\nfastest: placements with the shortest step. random needs: placements drawn "
        "until one of them, on average.\n\n"
        f"Samples until the shortest step, median / worst of {seeds} seeds; a search ends after "
        f"{MAX_SAMPLES}.\n(k): only k of the seeds got there; a dash: the median or worst seed did "
        "not.\nreached: searches that got there. So few placements random search tries, too: this "
        "tells\nwhether a system settles on what is not the optimum, not how fast it learns.\n\n"
        f"{systems}\n"
    )


def _cell(searches: Sequence[Search]) -> str:
    if not searches:
        return ""
    counts = [each.samples_to_optimum or np.inf for each in searches]
    reached = int(np.isfinite(counts).sum())
    middle, worst = sorted(counts)[len(counts) // 2], max(counts)
    cell = " / ".join(f"{value:.0f}" if np.isfinite(value) else "-" for value in (middle, worst))
    return cell if reached == len(counts) else f"{cell} ({reached})"


def main() -> None:
    """Runs what is missing, and writes the table and the CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="searches at a time (default 2)")
    parser.add_argument("--out_dir", default="benchmarks/results/systems_on_small_problems")
    args = parser.parse_args()
    text = _report(_run_all(args))
    pathlib.Path(args.out_dir, "table.txt").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
