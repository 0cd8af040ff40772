"""The comparison of machines that one graph was planned on, as a table for people."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from tf_placer.report.limits import LEAST_DISPLACED_SHARE
from tf_placer.text.table import table
from tf_placer.text.units import format_bytes, format_step

__all__ = ["AS_WELL_AS", "ComparedMachine", "MachineComparison"]

#: Within this factor of a step, another step is as good.
AS_WELL_AS = 1.02
_SECS_PER_HOUR = 3600.0
_COST_STEPS = 1_000_000
# From this share of the step on, a sentence says why a CPU beside GPUs computes.
_NOTABLE_CPU_SHARE = 0.1
# The kinds of work that sentences name in the plural; see `operation_kinds`.
_CPU_WORK = {
    "convolution": "convolutions",
    "lookup": "lookups",
    "matrix product": "matrix products",
    "other": "small operations of many kinds",
    "update": "updates of variables",
}
_ENOUGH, _DATA_PARALLEL = "enough", "data par."
# Characters of a line of the table, to which long names are wrapped.
_MAX_WIDTH = 120
# At least this factor above the bound of data parallelism, that is worth a try.
_CLEARLY_ABOVE = 1.1


@dataclasses.dataclass(frozen=True)
class ComparedMachine:
    """A machine, and the best step that was found for it.

    Attributes:
        name: the name that the machine was compared by.
        kind: the kinds of its accelerators, such as "A100" or "A100+T4".
        device_type: "GPU", or "device" if the machine has no GPU.
        accelerators: the number of its GPUs; of its devices if it has no GPU.
        step_secs: the simulated step; None if no placement that was tried fits.
        one_device_secs: the step with everything on its fastest accelerator that has room for it;
            None if there is none.
        lower_bound_secs: no placement has a shorter step.
        data_parallel_secs: no data-parallel step is shorter; see `compute_data_parallel_bound`.
        fullest_device: the device with the largest share of its memory in use.
        peak_bytes: the peak memory of that device.
        memory_bytes: the memory of that device.
        idle: the accelerators that compute in less than 1 % of the step.
        spare: the number of accelerators without which a placement was found whose step is at most
            2 % longer; there may be more of them.
        price_per_hour: the price of the machine; None if it was not given.
        cpu_share: the share of the step in which a CPU beside GPUs computes.
        displaced_share: the share of the step in which it does work for which GPUs lack memory.
        cpu_work: the kind of most of its work; "" if most of it could be on no GPU.
    """

    name: str
    kind: str
    device_type: str
    accelerators: int
    step_secs: float | None
    one_device_secs: float | None
    lower_bound_secs: float
    data_parallel_secs: float | None
    fullest_device: str
    peak_bytes: int
    memory_bytes: int
    idle: tuple[str, ...]
    spare: int
    price_per_hour: float | None = None
    cpu_share: float = 0.0
    displaced_share: float = 0.0
    cpu_work: str = ""

    @property
    def needed(self) -> int:
        """The number of accelerators that suffice for a step at most 2 % longer."""
        return self.accelerators - self.spare

    @property
    def speedup(self) -> float | None:
        """The speed-up over one of its accelerators; None if the graph does not fit on one."""
        if self.step_secs is None or self.one_device_secs is None:
            return None
        return self.one_device_secs / max(self.step_secs, 1e-300)

    @property
    def cost_per_million_steps(self) -> float | None:
        """The price of a million steps; None without a price or a step."""
        return self._compute_cost(self.step_secs)

    @property
    def data_parallel_cost_per_million_steps(self) -> float | None:
        """The least price of a million data-parallel steps; None without a price or a bound."""
        return self._compute_cost(self.data_parallel_secs)

    def _compute_cost(self, step_secs: float | None) -> float | None:
        if step_secs is None or self.price_per_hour is None:
            return None
        return self.price_per_hour / _SECS_PER_HOUR * step_secs * _COST_STEPS

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form."""
        return {
            **dataclasses.asdict(self),
            "fits": self.step_secs is not None,
            "speedup": self.speedup,
            "cost_per_million_steps": self.cost_per_million_steps,
            "data_parallel_cost_per_million_steps": self.data_parallel_cost_per_million_steps,
        }


@dataclasses.dataclass(frozen=True, repr=False)
class MachineComparison:
    """Machines in the order in which they were given, each with its best step.

    Attributes:
        machines: the machines.
    """

    machines: tuple[ComparedMachine, ...]

    def table(self) -> str:
        """Formats the machines, and sentences that say what follows, without a final newline."""
        short = _shorten_names(self)
        if short is not self:
            return short.table()
        nouns = {machine.device_type for machine in self.machines}
        noun = nouns.pop() if len(nouns) == 1 else "device"
        columns = {
            "machine": ("l", [each.name for each in self.machines]),
            f"{noun}s": ("r", [each.accelerators for each in self.machines]),
            _ENOUGH: ("r", [_format_needed(each) for each in self.machines]),
            "step": ("r", [_format_secs(each.step_secs, "none") for each in self.machines]),
            f"vs 1 {noun}": ("r", [_format_speedup(each) for each in self.machines]),
            "bound": ("r", [format_step(each.lower_bound_secs) for each in self.machines]),
            _DATA_PARALLEL: (
                "r",
                [_format_secs(each.data_parallel_secs, "-") for each in self.machines],
            ),
            "fullest device": ("l", [_format_memory(each) for each in self.machines]),
            "on CPU": ("r", [_format_cpu(each) for each in self.machines]),
            "price/h": ("r", [_format_price(each.price_per_hour) for each in self.machines]),
            "1M steps": (
                "r",
                [_format_price(each.cost_per_million_steps) for each in self.machines],
            ),
        }
        # Columns in which nothing is said of any machine.
        if all(each.spare == 0 for each in self.machines):
            del columns[_ENOUGH]
        if all(_format_cpu(each) in ("-", "0%") for each in self.machines):
            del columns["on CPU"]
        if all(each.data_parallel_secs is None for each in self.machines):
            del columns[_DATA_PARALLEL]
        if all(each.price_per_hour is None for each in self.machines):
            del columns["price/h"], columns["1M steps"]
        rows = list(zip(*(cells for _, cells in columns.values()), strict=True))
        alignment = "".join(side for side, _ in columns.values())
        lines = self.list_findings()
        if _ENOUGH in columns:
            lines.append(
                f"{_ENOUGH}: with so many {noun}s the step is at most 2 % longer; after ≤, even "
                "fewer may do"
            )
        shown = table(list(columns), rows, alignment, width=_MAX_WIDTH)
        return "\n\n".join([shown, "\n".join(lines)])

    def list_findings(self) -> list[str]:
        """Lists sentences about the fastest and the cheapest machine, and about fewer GPUs."""
        fitting = [machine for machine in self.machines if machine.step_secs is not None]
        if not fitting:
            return ["the graph fits on none of them: take more GPUs, or GPUs with more memory"]
        fastest = min(fitting, key=_get_step_secs)
        lines = [f"fastest: {fastest.name}, {format_step(_get_step_secs(fastest))} per step"]
        priced = [machine for machine in fitting if machine.cost_per_million_steps is not None]
        if priced:
            cheapest = min(priced, key=lambda each: each.cost_per_million_steps or 0.0)
            cost = _format_price(cheapest.cost_per_million_steps)
            lines.append(f"cheapest: {cheapest.name}, {cost} per million steps")
            lines += _describe_cheaper(fitting, cheapest)
        displaced = [
            f"{each.name} {each.displaced_share:.0%}"
            for each in fitting
            if each.displaced_share >= LEAST_DISPLACED_SHARE
        ]
        if displaced:
            lines.append(
                f"{', '.join(displaced)} of the step on the CPU, because the memory of the GPUs is "
                "short: take GPUs with more memory, or more of them"
            )
        lines += _describe_cpu_work(fitting)
        lines += _describe_fewer(fitting)
        lines += _describe_data_parallelism(fitting)
        return lines

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<MachineComparison of {len(self.machines)} machines: {self.list_findings()[0]}>"

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form, as `compare --json` prints it."""
        return {
            "machines": [machine.to_json() for machine in self.machines],
            "findings": self.list_findings(),
        }


def _shorten_names(compared: MachineComparison) -> MachineComparison:
    """Names files and directories without their folders and ".json", if that tells them apart."""
    names = [pathlib.PurePath(each.name).name.removesuffix(".json") for each in compared.machines]
    if len(set(names)) < len(names) or names == [each.name for each in compared.machines]:
        return compared
    return MachineComparison(
        tuple(
            dataclasses.replace(each, name=name)
            for each, name in zip(compared.machines, names, strict=True)
        )
    )


def _describe_cpu_work(fitting: Sequence[ComparedMachine]) -> list[str]:
    """Says why a CPU works where the memory of the GPUs is not short."""
    lines = []
    for work in dict.fromkeys(machine.cpu_work for machine in fitting if machine.cpu_work):
        alike = [
            each
            for each in fitting
            if each.cpu_work == work
            and each.cpu_share >= _NOTABLE_CPU_SHARE
            and each.displaced_share < LEAST_DISPLACED_SHARE
        ]
        if alike:
            least, most = (f"{f(each.cpu_share for each in alike):.0%}" for f in (min, max))
            share = least if least == most else f"{least} to {most}"
            lines.append(
                f"{', '.join(each.name for each in alike)}: the CPU computes in {share} of the "
                f"step, mostly {_CPU_WORK.get(work, work)}: not for want of memory, but because "
                "the step is shorter if it computes at the same time as the GPUs"
            )
    return lines


def _describe_fewer(fitting: Sequence[ComparedMachine]) -> list[str]:
    """Says which machines have more accelerators than the graph needs."""
    lines = []
    for kind in dict.fromkeys(machine.kind for machine in fitting):
        alike = sorted(
            (machine for machine in fitting if machine.kind == kind),
            key=lambda each: each.accelerators,
        )
        largest = alike[-1]
        enough = next(
            each for each in alike if _get_step_secs(each) <= AS_WELL_AS * _get_step_secs(largest)
        )
        if enough.accelerators < largest.accelerators:
            lines.append(
                f"{_count(enough, enough.accelerators)} would do as well as "
                f"{largest.accelerators}: "
                f"{enough.name} is within 2 % of {largest.name}"
            )
        if enough.spare:
            most = "at most " if enough.needed > 1 else ""
            lines.append(
                f"{most}{_count(enough, enough.needed)} of the {enough.accelerators} of "
                f"{enough.name} would do as well: a placement on so few is within 2 %"
            )
    return lines


def _describe_cheaper(fitting: Sequence[ComparedMachine], cheapest: ComparedMachine) -> list[str]:
    """Says which machines may be cheaper by data parallelism than the cheapest placement."""
    costs = {
        each.name: cost
        for each in fitting
        if (cost := each.data_parallel_cost_per_million_steps) is not None
    }
    if not costs:
        return []
    cheaper = [
        f"{name} at least {_format_price(costs[name])}"
        for name in sorted(costs, key=costs.__getitem__)
        if costs[name] < (cheapest.cost_per_million_steps or 0.0)
    ]
    if not cheaper:
        return [
            "data parallelism is on none of them cheaper than the "
            f"{_format_price(cheapest.cost_per_million_steps)} of {cheapest.name}"
        ]
    return [f"perhaps cheaper by data parallelism, per million steps: {', '.join(cheaper)}"]


def _count(machine: ComparedMachine, number: int) -> str:
    """Formats a number of accelerators, such as "1 GPU" or "4 GPUs"."""
    return f"{number} {machine.device_type}{'' if number == 1 else 's'}"


def _describe_data_parallelism(fitting: Sequence[ComparedMachine]) -> list[str]:
    """Says where data parallelism may be faster than the placement, and what it is."""
    bounded = [machine for machine in fitting if machine.data_parallel_secs is not None]
    if not bounded:
        return []
    slower = [
        machine.name
        for machine in bounded
        if _get_step_secs(machine) > _CLEARLY_ABOVE * (machine.data_parallel_secs or 0.0)
    ]
    return [
        f"{_DATA_PARALLEL}: no step of data parallelism is shorter, with the whole model on every "
        "device and a share of the batch for each",
        *([f"data parallelism may be faster, try it, too: {', '.join(slower)}"] if slower else []),
    ]


def _get_step_secs(machine: ComparedMachine) -> float:
    assert machine.step_secs is not None
    return machine.step_secs


def _format_secs(secs: float | None, missing: str) -> str:
    return missing if secs is None else format_step(secs)


def _format_speedup(machine: ComparedMachine) -> str:
    if machine.one_device_secs is None:
        return "too small"
    return "-" if machine.speedup is None else f"{machine.speedup:.2f}x"


def _format_needed(machine: ComparedMachine) -> str:
    if machine.step_secs is None:
        return "-"
    is_known = machine.needed == 1 or machine.spare == 0
    return str(machine.needed) if is_known else f"≤ {machine.needed}"


def _format_cpu(machine: ComparedMachine) -> str:
    return "-" if machine.device_type != "GPU" else f"{machine.cpu_share:.0%}"


def _format_memory(machine: ComparedMachine) -> str:
    share = machine.peak_bytes / max(machine.memory_bytes, 1)
    return f"{machine.fullest_device} {share:.0%} of {format_bytes(machine.memory_bytes)}"


def _format_price(price: float | None) -> str:
    return "-" if price is None else f"{price:.2f}"
