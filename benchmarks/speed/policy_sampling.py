"""How fast the policies sample placements, and what the systems spend their time on.

Training steps of an unrolled LSTM on one CPU and four GPUs, cut into as many groups as policies are
to place; what groups operations itself gets the operations. What is compared takes turns, so that a
disturbance of the machine falls on all of it; every number is a median over the rounds. Networks
have their published sizes, and what they are does not depend on what they have learned.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import gc
import os
import pathlib
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from benchmarks.problems.synthetic import unrolled_lstm
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.machines.processor import processor_name
from tf_placer.placers import granularity_of, make_placer
from tf_placer.placers.learned.learned_placer import LearnedPlacer
from tf_placer.placers.systems import SYSTEMS
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.text.table import table

__all__ = ["main"]

# Layers and steps of problems with so many groups, of about 40 operations each.
_PROBLEMS = {64: (3, 20), 256: (3, 84), 512: (7, 72)}

# What is sampled from: a system, and what of it is replaced.
_POLICIES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "softmax": ("post", {}),
    "gcn": ("colocrl", {"policy": "gcn"}),
    "graph_neural": ("graph_neural", {}),
    "seq2seq, attention before": ("colocrl", {}),
    "seq2seq, attention after": ("colocrl", {"attention": "after"}),
    "learned groups, seq2seq before": ("eagle", {}),
    "learned groups, seq2seq after": ("hierarchical", {}),
}

# What a system does in a search.
_PHASES = ("propose", "simulate", "observe")


def main() -> None:
    """Measures, and prints and writes both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="per policy (default 7)")
    parser.add_argument(
        "--samples", type=int, default=60, help="per system and turn, about (default 60)"
    )
    parser.add_argument("--turns", type=int, default=3, help="per system (default 3)")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--threads", type=int, default=0, help="of TensorFlow (default all cores)")
    parser.add_argument("--out_dir", default="benchmarks/results/policy_sampling")
    args = parser.parse_args()
    for set_threads in (
        tf.config.threading.set_intra_op_parallelism_threads,
        tf.config.threading.set_inter_op_parallelism_threads,
    ):
        set_threads(args.threads)
    tables = []
    for make_table in (
        functools.partial(_policy_table, args.rounds),
        functools.partial(_system_table, args.systems, args.turns, args.samples),
        functools.partial(_provenance, args),
    ):
        tables.append(make_table())
        print(f"{tables[-1]}\n", flush=True)
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.txt").write_text("\n\n".join(tables) + "\n")


def _policy_table(rounds: int) -> str:
    """Samples per second of every policy at every size."""
    cases = {
        (label, size): _placer(name, options, _problem(name, size))
        for label, (name, options) in _POLICIES.items()
        for size in _PROBLEMS
    }
    for placer in cases.values():
        _sample(placer, 0)  # Compiles.
    num_traces = _num_traces()
    secs: dict[tuple[str, int], list[float]] = collections.defaultdict(list)
    for turn in range(1, rounds + 1):
        for case, placer in cases.items():
            secs[case].append(_secs(functools.partial(_sample, placer, turn)) / placer.batch_size)
    rates = {case: 1 / np.median(values) for case, values in secs.items()}
    rows = []
    for label in _POLICIES:
        by_size = [rates[label, size] for size in _PROBLEMS]
        rows.append(
            [
                label,
                str(cases[label, 64].batch_size),
                *(f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}" for rate in by_size),
                f"{rates[label, 256] / rates['seq2seq, attention before', 256]:,.2f}x",
            ]
        )
    headers = ["policy", "batch", *(f"{size} groups" for size in _PROBLEMS), "to seq2seq before"]
    return (
        "Samples per second\n\n"
        + table(headers, rows, "l" + "r" * (len(headers) - 1))
        + "\n\nbatch: placements sampled at once. to seq2seq before: at 256 groups. Traces after "
        f"the first batch:\n{_num_traces() - num_traces}."
    )


@dataclasses.dataclass
class _Search:
    """A system at work.

    Attributes:
        placer: the system.
        environment: what simulates.
        secs: of each phase, one entry per turn.
    """

    placer: LearnedPlacer
    environment: SimulatedEnvironment
    secs: Mapping[str, list[float]]

    def turn(self, num_batches: int) -> None:
        """Samples, simulates and learns."""
        total = dict.fromkeys(_PHASES, 0.0)
        for _ in range(num_batches):
            results: list[Any] = []

            def propose(results: list[Any] = results) -> None:
                results.append(self.placer.propose(self.placer.batch_size))

            def simulate(results: list[Any] = results) -> None:
                results.append(self.environment.measure(results[0]))

            def observe(results: list[Any] = results) -> None:
                self.placer.observe(*results)

            for phase, call in zip(_PHASES, (propose, simulate, observe), strict=True):
                total[phase] += _secs(call)
        for phase, secs in total.items():
            self.secs[phase].append(secs)


def _system_table(systems: Sequence[str], turns: int, samples: int) -> str:
    """Measures what a sample costs each system, and of what."""
    searches = {}
    for name in systems:
        problem = _problem(name, 256)
        searches[name] = _Search(
            _placer(name, {}, problem),
            SimulatedEnvironment(problem, threads=1),
            {phase: [] for phase in _PHASES},
        )

    def num_batches(search: _Search) -> int:
        return max(1, round(samples / search.placer.batch_size))

    traces = []
    for _ in range(turns + 1):
        for search in searches.values():
            search.turn(num_batches(search))
        traces.append(_num_traces())
    rows = []
    cost: dict[str, float] = {}
    for name, search in searches.items():
        placer = search.placer
        num_samples = num_batches(search) * placer.batch_size
        # The first turn compiles.
        phases = np.array([search.secs[phase][1:] for phase in _PHASES])
        cost[name] = float(np.median(phases.sum(axis=0))) / num_samples
        shares = np.median(phases / phases.sum(axis=0), axis=1)
        rows.append(
            [
                name,
                f"{placer.agent.num_units:,}",
                str(placer.batch_size),
                f"{1e3 * cost[name]:,.1f} ms",
                *(f"{share:.0%}" for share in shares),
                f"{cost[name] / cost[systems[0]]:.2f}x",
            ]
        )
    headers = ["system", "units", "batch", "a sample", "sampling", "simulation", "learning"]
    headers += [f"to {systems[0]}"]
    return (
        "What the systems spend their time on, 256 groups\n\n"
        + table(headers, rows, "l" + "r" * (len(headers) - 1))
        + "\n\nunits: what is grouped and placed. a sample: wall time of one, its share of "
        f"learning included.\nTraces after the first turn: {traces[-1] - traces[0]}."
    )


@functools.cache
def _problem(name: str, num_groups: int) -> PlacementProblem:
    """Makes what a system is to place, in that many groups."""
    return _cut(num_groups, granularity_of(name) == "fine")


@functools.cache
def _cut(num_groups: int, per_operation: bool) -> PlacementProblem:
    problem = unrolled_lstm(*_PROBLEMS[num_groups])
    assert problem.num_groups == num_groups
    if not per_operation:
        return problem
    return dataclasses.replace(problem, groups=np.arange(problem.num_operations))


def _placer(name: str, options: Mapping[str, object], problem: PlacementProblem) -> LearnedPlacer:
    units = group_graph(problem)
    if granularity_of(name) == "fine":
        num_groups = next(size for size in _PROBLEMS if _problem(name, size) is problem)
        options = {"num_groups": num_groups, **options}
    placer = make_placer(
        name,
        units,
        legal_devices(problem),
        options=options,
        problem=problem,
    )
    assert isinstance(placer, LearnedPlacer)
    return placer


def _sample(placer: LearnedPlacer, turn: int) -> None:
    seed = tf.constant([turn, 0], tf.int64)
    for action in placer.agent.sample(placer.batch_size, seed):
        action.numpy()


def _secs(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _num_traces() -> int:
    """Counts how often any function of this process was traced."""
    function_type = type(tf.function(lambda: None))
    # Not isinstance, which would ask lazily imported modules what they are.
    functions = [each for each in gc.get_objects() if type(each) is function_type]
    return sum(function.experimental_get_tracing_count() for function in functions)


def _provenance(args: argparse.Namespace) -> str:
    cores = len(os.sched_getaffinity(0))
    arguments: Sequence[str] = sys.argv[1:]
    return (
        f"command: {' '.join(['python -m benchmarks.speed.policy_sampling', *arguments])}\n"
        f"versions: Python {platform.python_version()}, TensorFlow {tf.__version__}, "
        f"NumPy {np.__version__}\n"
        f"machine: {processor_name()}, {cores} cores, {args.threads or cores} threads"
    )


if __name__ == "__main__":
    main()
