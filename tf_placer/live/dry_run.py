"""The plan of a live search, shown without running it."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import numpy as np

from graph_passes.pipeline import group_operations
from tf_placer.costs.link_cache import find_links
from tf_placer.inputs.given_devices import describe_given_devices
from tf_placer.inputs.python_functions import check_python_functions_are_here
from tf_placer.live.optimization_target import OptimizationTarget
from tf_placer.live.preparation import explain_little_memory, explain_no_choice, prepare
from tf_placer.placers import find_granularity, needs_problem
from tf_placer.report.device_labels import device_labels
from tf_placer.runs.header import live_header, mark_costs_known
from tf_placer.runs.logged_names import name_as_logged
from tf_placer.runs.run_directory import TRIALS, RunDirectory
from tf_placer.runs.search_state import read_search_state
from tf_placer.runs.verdict import verdict
from tf_placer.search.config import SearchConfig
from tf_placer.search.log_header import check_header, continue_options
from tf_placer.text.table import table
from tf_placer.text.units import format_bytes, format_duration

__all__ = ["SearchPlan", "plan_search"]


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """The plan of a search.

    Attributes:
        operations: number of operations of the graph.
        operations_in_step: number of operations of a step.
        colocation_groups: number of colocation groups of a step.
        groups: number of groups.
        groups_to_place: number of groups with a choice of devices; the others keep their original
            device.
        groups_by_device: number of groups that may be placed on each device, by name.
        memory_bytes_by_device: memory of each device, by name; None for a device without a limit of
            its own.
        machine: the machine.
        placer: the name of the placer.
        is_profiled: whether the graph is profiled before the placer begins.
        are_links_measured: whether links of the machine are measured, too.
        max_trials: maximum number of trials.
        max_secs: time limit in seconds.
        log_dir: directory of the search; None for a temporary one.
        trials_there: number of trials of the same search in the directory.
        feeds: type and shape of fed values, by tensor.
        fetches: the fetches of a step.
        missing: the reason why there is nothing to search for, in one sentence; None if there is
            something.
    """

    operations: int
    operations_in_step: int
    colocation_groups: int
    groups: int
    groups_to_place: int
    groups_by_device: dict[str, int]
    memory_bytes_by_device: dict[str, int | None]
    machine: str
    placer: str
    is_profiled: bool
    are_links_measured: bool
    max_trials: int
    max_secs: float
    log_dir: str | None
    trials_there: int
    feeds: dict[str, str]
    fetches: tuple[str, ...]
    missing: str | None

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form: all fields."""
        return dataclasses.asdict(self) | {"fetches": list(self.fetches)}

    def table(self) -> str:
        """Shows the plan for people, without a final newline."""
        first = []
        if self.is_profiled:
            first.append("profiles the graph")
        if self.are_links_measured:
            first.append("measures the links (about 12 s)")
        log = "a new temporary directory" if self.log_dir is None else self.log_dir
        if self.trials_there:
            log += f", which has {self.trials_there} trials of this search: it resumes them"
        fed = ", ".join(f"{name} {kind}" for name, kind in self.feeds.items())
        lines = [
            f"graph:    {self.operations} operations, {self.operations_in_step} in a step",
            f"step:     fetches {', '.join(self.fetches)}; feeds {fed or 'nothing'}",
            f"to place: {self.groups_to_place} of {self.groups} groups "
            f"({self.colocation_groups} colocation groups)",
            f"machine:  {self.machine}, {len(self.groups_by_device)} devices",
            f"placer:   {self.placer}" + (f", which first {' and '.join(first)}" if first else ""),
            f"time:     {format_duration(self.max_secs)} or {self.max_trials} trials at most, "
            "the confirmation included",
            f"log:      {log}",
            f"missing:  {self.missing or 'nothing'}",
        ]
        labels = device_labels(list(self.groups_by_device))
        rows = [
            [labels[name], count, "" if size is None else format_bytes(size)]
            for (name, count), size in zip(
                self.groups_by_device.items(), self.memory_bytes_by_device.values(), strict=True
            )
        ]
        devices = table(["device", "groups that may go there", "memory"], rows, "lrr")
        return "\n".join([*lines, "", devices])


def plan_search(given: OptimizationTarget, config: SearchConfig) -> SearchPlan:
    """Plans a search without measuring or writing.

    Args:
        given: the step to place.
        config: the settings of the search.

    Raises:
        GraphError, MachineError, SearchError: as `prepare` raises them.
        LogError: the directory has the log of another search, or one that is damaged.
        OSError: the log cannot be read.
    """
    workload, config = given.workload, prepare(given, config)
    if config.log_dir is not None:
        workload = name_as_logged(workload, config, RunDirectory(config.log_dir)).workload
    machine, log_dir = config.found_machine, config.log_dir
    devices = tuple(device.name for device in machine.devices)
    granularity = find_granularity(config.placer, config.placer_options)
    grouped = group_operations(workload.op_graph, granularity, config.restrictions)
    legal = grouped.grouping.legal_devices(grouped.colocation, devices)
    # Count the coarse groups, even for placers of finer groups: users know only these.
    coarse = grouped.coarse or grouped
    coarse_legal = coarse.grouping.legal_devices(coarse.colocation, devices)
    needs_costs = needs_problem(config.placer)
    trials_there = 0
    if log_dir is not None and os.path.exists(os.path.join(log_dir, TRIALS)):
        state = read_search_state(log_dir)
        options = continue_options(config.placer, config.placer_options, state.header)
        config = dataclasses.replace(config, placer_options=options)
        header = live_header(config, workload.step, grouped, legal)
        if needs_costs or "costs" in state.header:
            header = mark_costs_known(header)
        # Logs are JSON, which has lists instead of tuples.
        header = json.loads(json.dumps({"format": state.header["format"], **header}))
        check_header(os.path.join(log_dir, TRIALS), state.header, header)
        trials_there = len(state.trials)
    caller = check_python_functions_are_here(workload, machine)
    missing = explain_no_choice(machine, calls_python=caller is not None)
    missing = missing or explain_little_memory(workload.op_graph, machine)
    if missing is None and grouped.num_decisions == 0:
        missing = verdict(None, describe_given_devices(workload.op_graph))
    needed = workload.op_graph.needed
    links_known = find_links(machine, config.found_session_config) is not None
    return SearchPlan(
        operations=workload.op_graph.num_operations,
        operations_in_step=int(needed.sum()),
        colocation_groups=len(np.unique(grouped.colocation.group[needed])),
        groups=coarse.grouping.num_groups,
        groups_to_place=coarse.num_decisions,
        groups_by_device=dict(zip(devices, coarse_legal.sum(axis=0).tolist(), strict=True)),
        memory_bytes_by_device={device.name: device.memory_bytes for device in machine.devices},
        machine=machine.spec,
        placer=config.placer,
        is_profiled=needs_costs,
        are_links_measured=needs_costs and not links_known and len(devices) > 1,
        max_trials=config.max_trials,
        max_secs=config.max_secs,
        log_dir=None if log_dir is None else os.fspath(log_dir),
        trials_there=trials_there,
        feeds={
            name: f"{value.dtype.name}{list(value.shape)}"
            for name, value in given.workload.step.feeds.items()
        },
        fetches=given.workload.step.fetches,
        missing=missing,
    )
