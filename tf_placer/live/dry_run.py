"""What a live search would do, without a trial: what is placed, where, by whom, how long."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import numpy as np

from graph_passes.pipeline import group_operations
from tf_placer.costs.known_links import find_links
from tf_placer.inputs.given_devices import given_devices_note
from tf_placer.inputs.python_functions import check_python_functions_are_here
from tf_placer.live.given_step import GivenStep
from tf_placer.live.preparation import prepare, why_no_choice
from tf_placer.placers import granularity_of, needs_problem
from tf_placer.report.device_labels import device_labels
from tf_placer.runs.header import live_header, with_costs
from tf_placer.runs.run_directory import TRIALS
from tf_placer.runs.search_state import read_search_state
from tf_placer.runs.verdict import verdict
from tf_placer.search.config import SearchConfig
from tf_placer.search.log_header import check_header
from tf_placer.text.table import table
from tf_placer.text.units import format_bytes, format_duration

__all__ = ["SearchPlan", "plan_search"]


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """What a search would do.

    Attributes:
        operations: of the graph.
        operations_in_step: those that a step runs.
        colocation_groups: that a step needs.
        groups: what these are put into.
        groups_to_place: groups that there is something to decide about; the others keep the device
            that they came with.
        groups_by_device: by name of a device, how many groups may go there.
        memory_bytes_by_device: by name of a device, its memory; None where it has no limit of its
            own.
        machine: where to place.
        placer: who searches.
        is_profiled: whether the graph is profiled before the placer begins.
        are_links_measured: whether links of the machine are measured, too.
        max_trials: trials at most.
        max_secs: seconds at most.
        log_dir: directory of the search; None for a temporary one.
        trials_there: trials of the same search that the directory has already.
        feeds: by tensor, the type and shape of what is fed.
        fetches: what a step fetches.
        missing: why there is nothing to search for, in one sentence; None if there is something.
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
            log += f", which has {self.trials_there} trials of this search: it goes on there"
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


def plan_search(given: GivenStep, config: SearchConfig) -> SearchPlan:
    """Says what a search would do; measures and writes nothing.

    Args:
        given: what would be placed.
        config: how.

    Raises:
        GraphError, MachineError, SearchError: as `prepare` raises them.
        LogError: the directory has the log of another search, or one that is damaged.
        OSError: it cannot be read.
    """
    source, config = given.source, prepare(given, config)
    machine, log_dir = config.found_machine, config.log_dir
    devices = tuple(device.name for device in machine.devices)
    granularity = granularity_of(config.placer, config.placer_options)
    grouped = group_operations(source.op_graph, granularity)
    legal = grouped.grouping.legal_devices(grouped.colocation, devices)
    # What people take for a group is that of the heuristics, however fine a placer's are.
    coarse = grouped.coarse or grouped
    coarse_legal = coarse.grouping.legal_devices(coarse.colocation, devices)
    needs_costs = needs_problem(config.placer)
    trials_there = 0
    if log_dir is not None and os.path.exists(os.path.join(log_dir, TRIALS)):
        state = read_search_state(log_dir)
        header = live_header(config, source.step, grouped, legal)
        if needs_costs or "costs" in state.header:
            header = with_costs(header)
        # As a log has it: tuples are lists there.
        header = json.loads(json.dumps({"format": state.header["format"], **header}))
        check_header(os.path.join(log_dir, TRIALS), state.header, header)
        trials_there = len(state.trials)
    caller = check_python_functions_are_here(source, machine)
    missing = why_no_choice(machine, calls_python=caller is not None)
    if missing is None and grouped.num_decisions == 0:
        missing = verdict(None, given_devices_note(source.op_graph))
    needed = source.op_graph.needed
    links_known = find_links(machine, config.found_session_config) is not None
    return SearchPlan(
        operations=source.op_graph.num_operations,
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
            for name, value in source.step.feeds.items()
        },
        fetches=source.step.fetches,
        missing=missing,
    )
