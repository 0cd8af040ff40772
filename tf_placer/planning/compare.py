"""The comparison of machines, by the best step that is found for a graph on each of them."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.util.json_text import format_value
from tf_placer.interrupts import shorten_interrupts
from tf_placer.placers.auto.auto_search import AutoProgress, AutoResult
from tf_placer.placers.auto.candidate import Candidate, simulate_candidates
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.planning.compared_plans import ComparedPlans
from tf_placer.planning.gpu_placement import WITH_CPU, prefer_gpus, search_on_gpus
from tf_placer.planning.plan import DEFAULT_SECS
from tf_placer.planning.plan_result import PlanResult
from tf_placer.problem.accelerators import find_accelerators
from tf_placer.problem.assignment_file import read_assignment
from tf_placer.problem.common_operations import describe_difference
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.problem.problem_groups import forbid_devices, group_graph, legal_devices
from tf_placer.report.compared_machine import (
    AS_WELL_AS,
    count_used,
    describe_machine,
    find_fewest,
    merge_idle,
)
from tf_placer.report.cpu_work import leans_on_cpus
from tf_placer.report.least_memory import find_least_memory
from tf_placer.report.limits import LEAST_DISPLACED_SHARE, find_limits
from tf_placer.report.machine_comparison import MachineComparison
from tf_placer.report.memory_curve import MoreMemory, search_more_memory
from tf_placer.report.one_device import place_on_one
from tf_placer.report.plan_directory import PlanDirectory, PlanRecord
from tf_placer.report.prices import match_prices
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator
from tf_placer.simulation.step_report import step_report
from tf_placer.text.progress_line import ProgressLine
from tf_placer.text.units import format_duration, format_step

__all__ = ["compare"]

# Share of the time of a machine for placements on fewer of its devices, or on larger ones.
_FEWER_SHARE = 0.25
_MIN_SEARCH_SECS = 1e-3
# A search whose step became shorter by this share, in this last part of it, had not ended well.
_NOTABLE_GAIN, _LATE_SHARE = 0.01, 0.25

#: A machine to compare: a problem, its file, or a finished search or its directory.
Source = PlacementProblem | PlanResult | str | os.PathLike[str]


@shorten_interrupts
def compare(
    machines: Mapping[str, Source] | Sequence[str | os.PathLike[str]],
    *,
    max_secs: float = DEFAULT_SECS,
    seed: int = 0,
    prices: Mapping[str, float] | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] | None = None,
    progress: Callable[[str], None] | None = None,
    verbose: bool = True,
) -> MachineComparison:
    """Compares machines by the best simulated step that is found for a graph on each.

    Problems are searched by `auto`, the smallest machine first; a larger machine also starts from
    the placements of smaller ones, and so is never worse for want of time. A quarter of the time
    goes into placements on fewer GPUs that are within 2 % of the best. Finished searches are
    compared as they are. Where nothing fits, or CPUs work for want of memory, the quarter goes
    into the memory that would do. An interrupt from the keyboard leaves out the machines that were
    not searched yet.

    Args:
        machines: by name, the problem of the graph on each machine or its file, as `profile` makes
            them; or a finished search: the result of `plan`, or its directory. The paths are the
            names of a list of files and directories.
        max_secs: time limit of all searches together; each gets an equal share of what is left.
        seed: seed of the searches.
        prices: by name, prices per hour, in any currency. The name of a file or directory may be
            given without its folder and ".json".
        log_dir: a directory for the plans, one below it for each machine that is searched, as
            `plan` keeps one, to apply the placements later. Searches go on from what an earlier
            comparison left there.
        say: called with lines for users, in place of printing them.
        progress: called often with a line about the search that runs, in place of printing it.
        verbose: whether to print these lines to the standard error.

    Raises:
        KeyboardInterrupt: the comparison was interrupted before a machine was searched.
        LogError: a directory is that of another search.
        OSError: a file cannot be read or written.
        TypeError: `progress` or `say` cannot be called, or machines or prices have no names.
        ValueError: a file, a name or a number is wrong.

    Example:
        >>> names = ["1xA100", "4xA100", "8xA100"]
        >>> problems = tf_placer.profile(graph, machine=names, output="plans")
        >>> print(tf_placer.compare(problems, prices={"4xA100": 14.0}))
    """
    if isinstance(machines, str | os.PathLike) or not machines:
        raise ValueError("compare needs machines: problems by name, or a list of files")
    for name, function in (("progress", progress), ("say", say)):
        if function is not None and not callable(function):
            raise TypeError(
                f"compare() calls {name}=... with lines for users: it is a function, not of type "
                f"{type(function).__name__}"
            )
    if not max_secs > 0:
        raise ValueError(f"max_secs must be greater than 0, not {format_value(max_secs)}")
    if not isinstance(machines, Mapping):
        for path in machines:
            if not isinstance(path, str | os.PathLike):
                raise TypeError(
                    "compare takes a list of files and directories; problems and results have "
                    f"names, as in {{'4xA100': problem}}, unlike one of type {type(path).__name__}"
                )
        machines = {os.fspath(path): path for path in machines}
    prices = match_prices(prices or {}, list(machines))
    read = {name: _read_source(name, source) for name, source in machines.items()}
    _check_same_graph({name: problem for name, (problem, _) in read.items()})
    found = {name: placement for name, (_, placement) in read.items() if placement is not None}
    problems = {name: problem for name, (problem, _) in read.items() if name not in found}
    plans = ComparedPlans(log_dir, problems, seed)
    pool = [*found.values(), *plans.kept]
    records = {
        name: record
        for name, source in machines.items()
        if (record := _read_record(source)) is not None
    }
    needed = {name: each.needed for name, each in records.items() if each.needed is not None}
    memory = {
        name: _Memory(each.least_memory_bytes, each.more_memory) for name, each in records.items()
    }
    gpus_only: dict[str, np.ndarray] = {}
    with ProgressLine(sys.stderr) as line:
        searched = _search_machines(
            problems,
            pool,
            memory,
            gpus_only,
            plans,
            max_secs,
            seed,
            say or (line.say if verbose else _ignore),
            progress or (line.show if verbose else _ignore),
        )
    kept = {name: source for name, source in machines.items() if isinstance(source, PlanResult)}
    for name, result in searched.items():
        # A placement that was found for a larger machine may be better for a smaller one, too.
        best, needed[name] = _choose_placement(problems[name], pool)
        found[name] = best.placement
        lacking = memory.get(name, _Memory())
        least_bytes = lacking.least_bytes if best.excess_bytes else None
        gpus_only_secs = _find_gpus_only_secs(problems[name], best, gpus_only.get(name))
        kept[name] = plans.keep(
            *(name, result, best, needed[name]),
            least_bytes=least_bytes,
            more=lacking.more,
            gpus_only_secs=gpus_only_secs,
        )
        records[name] = kept[name].to_record()
    directories = {**_find_directories(machines), **plans.directories}
    described = []
    for name, (problem, _) in read.items():
        if name not in found:
            continue
        lacking = memory.get(name, _Memory())
        machine = describe_machine(
            *(name, problem, found[name], prices.get(name), needed.get(name)),
            *(lacking.least_bytes, lacking.more),
            records[name].gpus_only_secs if name in records else None,
        )
        described.append(
            dataclasses.replace(
                machine,
                log_dir=directories.get(name),
                with_cpu_secs=_find_with_cpu_secs(records.get(name)),
            )
        )
    left_out = tuple(name for name in read if name not in found)
    return MachineComparison(tuple(described), left_out, kept)


def _find_with_cpu_secs(record: PlanRecord | None) -> float | None:
    """Finds the step of a faster placement that was not chosen, because CPUs work in it."""
    candidates = () if record is None else record.candidates
    return next((each.step_secs for each in candidates if each.label == WITH_CPU), None)


def _find_gpus_only_secs(
    problem: PlacementProblem, best: Candidate, placement: np.ndarray | None
) -> float | None:
    """Finds the step of a placement without work on CPUs, if one with such work was chosen."""
    if placement is None or best.excess_bytes:
        return None
    if not leans_on_cpus(problem, best.placement, find_limits(problem, best.placement)):
        return None
    [found] = simulate_candidates(problem, Simulator(problem), placement[np.newaxis])
    return None if found.excess_bytes else found.step_secs


@dataclasses.dataclass(frozen=True)
class _Memory:
    """The memory that was found to do on a machine whose memory is short.

    Attributes:
        least_bytes: of each device, where nothing fits; None otherwise.
        more: of each GPU for a shorter step, where a CPU works for want of memory; None otherwise.
    """

    least_bytes: int | None = None
    more: MoreMemory | None = None


def _find_directories(machines: Mapping[str, Source]) -> dict[str, str]:
    """Finds the directories of the searches that had ended before."""
    directories = {}
    for name, source in machines.items():
        if isinstance(source, PlanResult):
            if source.log_dir is not None:
                directories[name] = os.fspath(source.log_dir)
        elif isinstance(source, str | os.PathLike) and os.path.isdir(source):
            directories[name] = os.fspath(source)
    return directories


def _check_same_graph(problems: Mapping[str, PlacementProblem]) -> None:
    """Checks that problems are of one graph, or of graphs that have most operations in common.

    Raises:
        ValueError: they are not.
    """
    (name, first), *others = problems.items()
    for other, problem in others:
        if (difference := describe_difference(first, problem)) is not None:
            raise ValueError(
                f"{name} and {other} are of different graphs, whose steps say nothing about the "
                f"machines: {difference}"
            )


def _ignore(line: str) -> None:
    del line


def _search_machines(
    problems: Mapping[str, PlacementProblem],
    pool: list[np.ndarray],
    memory: dict[str, _Memory],
    gpus_only: dict[str, np.ndarray],
    plans: ComparedPlans,
    max_secs: float,
    seed: int,
    say: Callable[[str], None],
    progress: Callable[[str], None],
) -> dict[str, AutoResult]:
    """Searches on machines, the smallest first.

    Args:
        problems: the problem on each machine, by name.
        pool: known placements, int32 [num_groups] each; those that are found are added.
        memory: gets the memory that would do, by machine, where it is short.
        gpus_only: gets a placement without work on CPUs, by machine, where they work.
        plans: keeps the plan of each machine when it is found.
        max_secs: time limit of all searches together.
        seed: seed of the searches.
        say: called with lines for users.
        progress: called with a line about the search that runs.

    Returns:
        The searches by machine: of all machines but those that an interrupt left out.
    """
    results: dict[str, AutoResult] = {}
    searched = sorted(problems, key=lambda name: problems[name].num_devices)
    used: dict[str, float] = {}
    improving: list[str] = []
    start_secs = time.monotonic()
    if searched:
        each, plural = format_duration(max_secs / len(searched)), "s" * (len(searched) > 1)
        say(
            f"searching on {len(searched)} machine{plural} for {format_duration(max_secs)} in all "
            f"(max_secs), {each} each, the smallest first"
        )
    for number, name in enumerate(searched):
        problem = problems[name]
        place = f"{name} ({number + 1} of {len(searched)})"
        begin_secs = time.monotonic()
        left_secs = max(_MIN_SEARCH_SECS, start_secs + max_secs - begin_secs)
        secs = left_secs / (len(searched) - number)
        # Everything on the only accelerator leaves no questions about fewer or larger ones.
        on_one = Simulator(problem).simulate(place_on_one(problem))
        share = 0.0 if on_one.feasible.all() and len(on_one.feasible) == 1 else _FEWER_SHARE
        groups = group_graph(problem)
        improvement = _Improvement()

        def report(
            state: AutoProgress, improvement: _Improvement = improvement, place: str = place
        ) -> None:
            improvement.watch(state)
            _report_progress(progress, place, state)

        result = coarse_to_fine_search(
            problem,
            groups,
            max_secs=(1.0 - share) * secs,
            starts=[("other machine", each) for each in _list_legal(problem, pool)],
            seed=seed,
            report=report,
        )
        if (gain := improvement.compute_late_gain()) >= _NOTABLE_GAIN:
            improving.append(f"{name} {gain:.1%}")
        pool.append(result.best.placement)
        results[name] = result
        if plans.directories:
            plans.keep(name, result, result.best)
        left_secs = begin_secs + secs - time.monotonic()
        if not result.interrupted and not result.best.excess_bytes:
            limits = find_limits(problem, result.best.placement)
            if limits.displaced_share >= LEAST_DISPLACED_SHARE:
                progress(f"{place}: memory is short, searching for the memory that would do better")
                more = search_more_memory(
                    *(problem, groups, result.best.placement), search_secs=left_secs, seed=seed
                )
                memory[name] = _Memory(more=more)
            else:
                progress(f"{place}: searching without CPUs, and on fewer devices")
                try:
                    on_gpus = search_on_gpus(
                        *(problem, groups, result.best), max_secs=left_secs / 2, seed=seed
                    )
                except KeyboardInterrupt:
                    results[name] = result = dataclasses.replace(result, interrupted=True)
                    on_gpus, secs = None, 0.0
                if on_gpus is not None:
                    pool.append(on_gpus)
                    gpus_only[name] = on_gpus
                left_secs = begin_secs + secs - time.monotonic()
                pool.append(
                    _search_fewer(
                        *(problem, groups, result.best, pool), max_secs=left_secs, seed=seed
                    )
                )
        elif not result.interrupted:
            progress(f"{place}: nothing fits, searching for the memory that would do")
            least_bytes = find_least_memory(
                *(problem, groups, result.best.placement),
                search_secs=left_secs,
                seed=seed,
            )
            memory[name] = _Memory(least_bytes)
        used[name] = time.monotonic() - begin_secs
        if result.interrupted:
            left_out = ", ".join(searched[number + 1 :])
            say(f"interrupted{f': {left_out} not searched' if left_out else ''}")
            break
    if used:
        each = ", ".join(f"{name} {format_duration(secs)}" for name, secs in used.items())
        say(f"searched for {format_duration(sum(used.values()))}: {each}")
    if improving:
        say(
            "steps still became shorter in the last fourth of the search, so that with a larger "
            f"max_secs they may be shorter by as much again: {', '.join(improving)}"
        )
    return results


def _read_record(source: Source) -> PlanRecord | None:
    """Reads the record of a finished plan; None for a problem."""
    if isinstance(source, PlanResult):
        return source.to_record()
    if not isinstance(source, str | os.PathLike) or not os.path.isdir(source):
        return None
    return PlanDirectory(source).read_record()


class _Improvement:
    """Watches whether a search still finds clearly shorter steps towards its end."""

    def __init__(self) -> None:
        self._steps: list[tuple[float, float]] = []

    def watch(self, state: AutoProgress) -> None:
        """Receives the state of the search."""
        if not state.best.excess_bytes:
            self._steps.append((state.share, state.best.step_secs))

    def compute_late_gain(self) -> float:
        """Computes by what share the step became shorter in the last part of the search."""
        early = [secs for share, secs in self._steps if share <= 1.0 - _LATE_SHARE]
        return 1.0 - self._steps[-1][1] / min(early) if early else 0.0


def _report_progress(progress: Callable[[str], None], place: str, state: AutoProgress) -> None:
    best = "none fits" if state.best.excess_bytes else format_step(state.best.step_secs)
    progress(
        f"{place}: {state.num_simulated:,} trials | best so far {best} | "
        f"{state.share:.0%} of its time"
    )


def _search_fewer(
    problem: PlacementProblem,
    groups: GroupGraph,
    best: Candidate,
    known: Sequence[np.ndarray],
    *,
    max_secs: float,
    seed: int,
) -> np.ndarray:
    """Searches for a placement on as few accelerators as possible, within 2 % of the best step.

    By bisection of their number; those with the most work in the best placement stay.

    Args:
        problem: the problem.
        groups: its groups.
        best: a placement that fits.
        known: other placements, int32 [num_groups] each.
        max_secs: time limit of all searches.
        seed: seed of the searches.

    Returns:
        int32 [num_groups], the placement on the fewest accelerators that was found.
    """
    end_secs = time.monotonic() + max_secs
    limit_secs = AS_WELL_AS * best.step_secs
    accelerators = find_accelerators(problem)
    simulator = Simulator(problem)
    step = step_report(simulator.trace(best.placement))
    busy_secs = np.array([step.devices[index].busy_secs for index in accelerators])
    order = accelerators[np.argsort(-busy_secs, kind="stable")]
    tried = [best.placement, *merge_idle(problem, best.placement, step)]
    fewest = find_fewest(
        problem,
        simulate_candidates(problem, simulator, np.stack([*tried, *_list_legal(problem, known)])),
        limit_secs,
    )
    enough, too_few = count_used(problem, fewest), 0
    while enough - too_few > 1:
        count = (too_few + enough) // 2
        fewer = forbid_devices(problem, order[count:])
        bounds = lower_bounds(fewer)
        left_secs = end_secs - time.monotonic()
        if left_secs <= 0:
            break
        if bounds.fits and bounds.step_secs <= limit_secs:
            on_fewer = np.where(np.isin(best.placement, order[count:]), order[0], best.placement)
            result = coarse_to_fine_search(
                fewer,
                groups,
                max_secs=left_secs / math.ceil(math.log2(enough - too_few)),
                stop_secs=limit_secs,
                starts=[("known", on_fewer)],
                seed=seed,
            )
            if result.interrupted:
                break
            if not result.best.excess_bytes and result.best.step_secs <= limit_secs:
                fewest = result.best.placement
                enough = count_used(problem, fewest)
                continue
        too_few = count
    return fewest


def _choose_placement(
    problem: PlacementProblem, pool: Sequence[np.ndarray]
) -> tuple[Candidate, int]:
    """Chooses the best of several placements, of which at least one is legal.

    Returns:
        The placement, and the number of accelerators of the placement on the
        fewest that is within 2 % of it.
    """
    placements = np.stack(_list_legal(problem, pool))
    candidates = simulate_candidates(problem, Simulator(problem), placements)
    best = min(candidates, key=lambda each: each.rank)
    best = prefer_gpus(problem, best, candidates)
    if best.excess_bytes:
        return best, len(find_accelerators(problem))
    fewest = find_fewest(problem, candidates, AS_WELL_AS * best.step_secs)
    return best, count_used(problem, fewest)


def _read_source(name: str, source: Source) -> tuple[PlacementProblem, np.ndarray | None]:
    """Reads a problem, and the placement of a finished search.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is wrong.
    """
    if isinstance(source, PlanResult):
        return source.problem, source.assignment
    if isinstance(source, PlacementProblem):
        return source, None
    if not os.path.isdir(source):
        return read_problem(source), None
    directory = PlanDirectory(source)
    for path in (directory.problem, directory.result):
        if not path.exists():
            raise ValueError(
                f"{name} has no {path.name}: give the directory of a finished `search` (its "
                "--log_dir), or a problem file"
            )
    problem_path = os.fspath(directory.problem)
    problem = read_problem(problem_path)
    return problem, read_assignment(os.fspath(directory.result), problem, problem_path)


def _list_legal(problem: PlacementProblem, pool: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Lists placements of other machines that are legal on this one, int32 [num_groups] each.

    Each counts as it is, and with the first accelerators of this machine for those that it uses.
    """
    legal = legal_devices(problem)
    accelerators = find_accelerators(problem)
    hosts = np.setdiff1d(np.arange(problem.num_devices), accelerators)
    placements = []
    for placement in pool:
        if len(placement) != problem.num_groups:
            continue
        placements.append(placement)
        others = np.setdiff1d(placement, hosts)
        if len(others) <= len(accelerators):
            renamed = np.arange(max(problem.num_devices, placement.max(initial=0) + 1))
            renamed[others] = accelerators[: len(others)]
            placements.append(renamed[placement])
    rows = np.arange(problem.num_groups)
    return [
        placement.astype(np.int32)
        for placement in placements
        if placement.max(initial=0) < problem.num_devices and legal[rows, placement].all()
    ]
