"""The result of planning: the best placement of a problem, and its limits."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import textwrap
from typing import Any

import numpy as np

from graph_passes.placement import Placement, write_placement
from tf_placer.placers.auto.auto_search import AutoResult
from tf_placer.planning.gpu_placement import WITH_CPU
from tf_placer.planning.planned_placement import build_planned_placement, outcome_values
from tf_placer.problem.accelerators import is_gpu
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_error import ProblemError
from tf_placer.report.auto_table import auto_table, limits_table
from tf_placer.report.convolutions import (
    CONVOLUTION_CAVEAT,
    NOTABLE_CONVOLUTION_SHARE,
    compute_convolution_share,
)
from tf_placer.report.cpu_work import describe_cpu_work
from tf_placer.report.least_memory import describe_least_memory, describe_offload
from tf_placer.report.limits import Limits
from tf_placer.report.memory_curve import (
    MemoryPoint,
    MoreMemory,
    describe_memory_curve,
    describe_more_memory,
)
from tf_placer.report.one_device import OneDevice, simulate_one_device
from tf_placer.report.pictures.notebook_figure import draw_figure
from tf_placer.report.plan_directory import PlanCandidate, PlanRecord
from tf_placer.report.search_table import format_outcome, search_table, search_values
from tf_placer.report.what_if import WhatIf
from tf_placer.search.simulated_search import SearchOutcome
from tf_placer.simulation.host_offload import HostOffload
from tf_placer.simulation.recomputation import Recomputation
from tf_placer.text.shown_table import ShownTable
from tf_placer.text.units import format_bytes, format_step

__all__ = ["PlanResult", "UnwrittenPlanError"]

# Memory that is used less than this is no reason to place anything elsewhere.
_NOTABLE_SHARE = 0.05
# Characters of a line, and the column of the values.
_MAX_WIDTH, _INDENT = 120, " " * 14


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PlanResult(ShownTable):
    """The best placement of a problem that a simulated search found.

    Attributes:
        problem: the placement problem.
        outcome: the placement, its simulated step and the effort of the search.
        auto: the comparisons of `auto`; None for another placer.
        limits: lower bounds of the step; None if the placement does not fit.
        changes: the gains on other machines; empty if there was no time to compute them, and for
            another placer.
        log_dir: the directory of the search; None if nothing was kept.
        least_memory_bytes: the memory of each device with which a placement was found that fits;
            None if one fits as it is, or there was no time to find out.
        memory_curve: steps within less memory, beginning with the placement or a better one; empty
            if there was no time, and for another placer than `auto`.
        more_memory: the least memory of each GPU that was found for a step about as short as with
            unlimited memory; None if no work is on a CPU for want of memory, or there was no time.
        offload: the step if activations wait on the CPU, where nothing fits otherwise; or None.
        recomputation: the step if activations are computed again, where nothing fits; None if that
            is not enough.
        gpus_only_secs: where CPUs beside GPUs work, the step that was found without that; None if
            not searched.
    """

    problem: PlacementProblem
    outcome: SearchOutcome
    auto: AutoResult | None = None
    limits: Limits | None = None
    changes: tuple[WhatIf, ...] = ()
    log_dir: str | os.PathLike[str] | None = None
    least_memory_bytes: int | None = None
    memory_curve: tuple[MemoryPoint, ...] = ()
    more_memory: MoreMemory | None = None
    offload: HostOffload | None = None
    recomputation: Recomputation | None = dataclasses.field(default=None, kw_only=True)
    gpus_only_secs: float | None = dataclasses.field(default=None, kw_only=True)

    @property
    def assignment(self) -> np.ndarray:
        """The device index of each group, int32 [num_groups]."""
        return np.array(self.outcome.assignment, np.int32)

    @property
    def step_secs(self) -> float | None:
        """The simulated step in seconds; None if an operation is on an illegal device."""
        return self.outcome.step_secs

    @property
    def lower_bound_secs(self) -> float:
        """A time in seconds that no placement beats."""
        return self.outcome.lower_bound_secs

    @property
    def feasible(self) -> bool:
        """True if the placement fits; see `SearchOutcome`."""
        return self.outcome.feasible

    @property
    def peak_bytes(self) -> tuple[int, ...]:
        """The peak memory of each device."""
        return self.outcome.peak_bytes

    @property
    def trials(self) -> int:
        """The number of simulated placements, including repeats."""
        return self.outcome.trials

    @property
    def placement(self) -> Placement:
        """The device of each operation of the graph, for `tf_placer.apply_placement`.

        Raises:
            ProblemError: the problem was not made of a TensorFlow graph.
        """
        placement = build_planned_placement(self.problem, self.outcome)
        if placement is None:
            raise ProblemError(
                "the problem is not that of a TensorFlow graph, so its groups have devices, but no "
                "operations: `tf_placer.profile` makes a problem of a graph"
            )
        return placement

    @property
    def offload_placement(self) -> Placement | None:
        """The placement whose activations wait on the CPU, as `offload` takes it.

        Of it are the estimate where nothing fits, and the row of the table about other machines.
        None if no such estimate was made, or the problem was not made of a TensorFlow graph.
        """
        steps = [(each.assignment, each.step_secs) for each in self.changes if each.assignment]
        if self.offload is not None:
            steps.append((self.offload.assignment, self.offload.step_secs))
        if not steps:
            return None
        assignment, step_secs = steps[0]
        # It does not fit before its activations move.
        outcome = dataclasses.replace(
            self.outcome, assignment=assignment, step_secs=step_secs, feasible=False
        )
        return build_planned_placement(self.problem, outcome)

    def to_record(self) -> PlanRecord:
        """Makes the record of the search for a page, without its settings and its samples."""
        found = () if self.auto is None else (("found", self.auto.best), *self.auto.starts)
        return PlanRecord(
            header={},
            command="",
            time="",
            candidates=tuple(
                PlanCandidate(
                    label,
                    each.step_secs if math.isfinite(each.step_secs) else None,
                    not each.excess_bytes,
                )
                for label, each in found
            ),
            changes=self.changes,
            memory_curve=self.memory_curve,
            remarks=tuple(self.list_remarks()),
            least_memory_bytes=self.least_memory_bytes,
            more_memory=self.more_memory,
            gpus_only_secs=self.gpus_only_secs,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the placement to a file (`.json`), as the command `apply` takes it.

        Raises:
            OSError: the file cannot be written.
            ProblemError: the problem was not made of a TensorFlow graph.
        """
        write_placement(self.placement, path)

    def table(self) -> str:
        """Formats the placement, its step and its limits, without a final newline."""
        least_bytes = self.least_memory_bytes
        lines = [search_table(self.problem, self.outcome, least_bytes, self.offload, self.limits)]
        lines += self._compare_with_one_device()
        lines += [_wrap(f"note:         {note}") for note in self.problem.notes]
        if on_cpu := self._cpu_work:
            lines.append(_wrap(f"the CPU:      {on_cpu}"))
        if self.auto is None:
            if self.limits is not None:
                lines += ["", limits_table(self.limits, "found")]
            return "\n".join(lines)
        if self.auto.is_optimal:
            lines.append("              no placement is better")
        elif self.auto.is_near_bound:
            lines.append(
                "              no placement is better by more than 1 %: the search ended early"
            )
        if len(self.memory_curve) > 1 and self._is_memory_notable:
            lines.append(_wrap(f"less memory:  {describe_memory_curve(self.memory_curve)}"))
        if more := self._describe_more_memory():
            lines.append(_wrap(f"more memory:  {more}"))
        if self.recomputation is not None:
            lines.append(_wrap(f"recomputing:  it {self.recomputation.describe()}"))
        lines += ["", auto_table(self.problem, self.auto, self.changes, self.limits)]
        if self.feasible and not self.outcome.interrupted and not self.changes:
            lines.append("what other machines would bring is left out: there is no time for it")
        return "\n".join(lines)

    @property
    def _is_memory_notable(self) -> bool:
        """True if the placement fills a notable share of a device."""
        sizes = zip(self.outcome.peak_bytes, self.problem.devices, strict=True)
        return any(peak > _NOTABLE_SHARE * device.memory_bytes for peak, device in sizes)

    def list_remarks(self) -> list[str]:
        """Lists sentences about data parallelism, the CPU and other memory, for the page."""
        remarks = []
        if parallel := self._describe_data_parallelism():
            remarks.append(f"Data parallelism: {parallel}.")
        if on_cpu := self._cpu_work:
            remarks.append(f"The CPU {on_cpu}.")
        if more := self._describe_more_memory():
            remarks.append(f"With more memory: {more}.")
        if self.least_memory_bytes is not None:
            least = describe_least_memory(self.problem, self.least_memory_bytes)
            remarks.append(f"Nothing fits; {least}.")
        if self.offload is not None:
            remarks.append(f"Nothing fits, but {describe_offload(self.offload)}.")
        if compute_convolution_share(self.problem) >= NOTABLE_CONVOLUTION_SHARE:
            remarks.append(f"Convolutions: {CONVOLUTION_CAVEAT}.")
        return [*remarks, *(f"{note[:1].upper()}{note[1:]}." for note in self.problem.notes)]

    @functools.cached_property
    def _one_device(self) -> OneDevice:
        return simulate_one_device(self.problem)

    @property
    def _accelerator(self) -> str:
        return "GPU" if any(map(is_gpu, self.problem.devices)) else "device"

    def _compare_with_one_device(self) -> list[str]:
        """Compares the step with those without a placement, in lines."""
        if not self.feasible or self.step_secs is None or self._one_device.is_divided:
            return []
        secs = self._one_device.secs
        needed = format_bytes(self._one_device.needed_bytes)
        compared = (
            f"it has no room for the model, which needs {needed}"
            if secs is None
            else f"{secs / max(self.step_secs, 1e-300):.2f}x as fast ({format_step(secs)})"
        )
        lines = [f"{f'vs 1 {self._accelerator}:':14}{compared}"]
        if parallel := self._describe_data_parallelism():
            lines.append(_wrap(f"data par.:    {parallel}"))
        return lines

    def _describe_data_parallelism(self) -> str | None:
        """Says, as a clause, where data parallelism may be faster than the placement."""
        secs = self._one_device.data_parallel_secs
        if not self.feasible or self.step_secs is None or secs is None or secs >= self.step_secs:
            return None
        return (
            f"with the whole model on every {self._accelerator} and a share of the batch for each, "
            f"a step takes {format_step(secs)} or more, and may be faster: try it, too"
        )

    @functools.cached_property
    def _cpu_work(self) -> str | None:
        if self.limits is None:
            return None
        found = dict(() if self.auto is None else self.auto.starts).get(WITH_CPU)
        if found is not None and self.step_secs is not None:
            return (
                f"has no work: with some on it a step takes {format_step(found.step_secs)}, "
                f"{1.0 - found.step_secs / self.step_secs:.1%} less, by a simulation that gives "
                "the launches of the work of GPUs no time of the CPU"
            )
        return describe_cpu_work(self.problem, self.assignment, self.limits, self.gpus_only_secs)

    def _describe_more_memory(self) -> str:
        if self.more_memory is None or self.limits is None:
            return ""
        return describe_more_memory(self.more_memory, self.limits.step_secs)

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form, as `search --json` prints it."""
        values = search_values(
            self.problem,
            self.outcome,
            self.auto,
            self.limits,
            self.changes,
            self.least_memory_bytes,
            self.memory_curve,
            self.more_memory,
            self.offload,
        )
        again = self.recomputation
        values |= outcome_values(self.problem, self.outcome)
        return values | {"recomputation": None if again is None else dataclasses.asdict(again)}

    def _repr_html_(self) -> str:
        """Shows the table and a picture of the placement in a notebook."""
        devices = self.assignment[self.problem.groups]
        label = "found" if self.feasible else "found, does not fit"
        return super()._repr_html_() + draw_figure(self.problem, devices, label)

    def __repr__(self) -> str:
        counts = np.bincount(self.assignment, minlength=self.problem.num_devices).tolist()
        return (
            f"<PlanResult of {self.outcome.placer!r}: step {format_outcome(self.outcome)}, groups "
            f"per device {counts}, {self.outcome.trials:,} trials>"
        )


def _wrap(line: str) -> str:
    """Wraps a line that begins with the name of a value."""
    return textwrap.fill(line, _MAX_WIDTH, subsequent_indent=_INDENT)


class UnwrittenPlanError(OSError):
    """A failure to write a file of a plan that was found.

    Attributes:
        result: the plan.
    """

    def __init__(self, text: str, result: PlanResult) -> None:
        super().__init__(text)
        self.result = result
