"""The comparison of machines that one graph was planned on, as a table for people."""

from __future__ import annotations

import dataclasses
import pathlib
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tf_placer.report.compared_machine import AS_WELL_AS, ComparedMachine, compute_cost
from tf_placer.report.convolutions import CONVOLUTION_CAVEAT, NOTABLE_CONVOLUTION_SHARE
from tf_placer.report.cpu_work import NOTABLE_CPU_SHARE, name_work
from tf_placer.report.limits import LEAST_DISPLACED_SHARE
from tf_placer.text.shown_table import ShownTable
from tf_placer.text.table import table, terminal_width
from tf_placer.text.units import format_bytes, format_step

__all__ = ["MachineComparison", "describe_remarks", "format_price", "make_columns"]

_ENOUGH, _DATA_PARALLEL = "enough", "data par."
# Characters of a line of the table, to which long names and the sentences below are wrapped.
_MAX_WIDTH = 120
_INDENT = " " * 4
# At least this factor above the bound of data parallelism, that is worth a try.
_CLEARLY_ABOVE = 1.1
_LEAST_PRICE_WITHOUT_CENTS = 1000


@dataclasses.dataclass(frozen=True, repr=False)
class MachineComparison(ShownTable):
    """Machines in the order in which they were given, each with its best step.

    Attributes:
        machines: the machines.
        left_out: the names of machines that were not searched, because of an interrupt.
        plans: the plan on each machine by name, as `plan` returns it, but for those of directories.
    """

    machines: tuple[ComparedMachine, ...]
    left_out: tuple[str, ...] = ()
    plans: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    def table(self) -> str:
        """Formats the machines, and sentences that say what follows, without a final newline."""
        short = _shorten_names(self)
        if short is not self:
            return short.table()
        nouns = {machine.device_type for machine in self.machines}
        noun = nouns.pop() if len(nouns) == 1 else "device"
        columns = {
            "machine": ("l", [each.name for each in self.machines]),
            f"{noun}s": ("r", [str(each.accelerators) for each in self.machines]),
            **make_columns(self.machines, [_ENOUGH]),
            "step": ("r", [_format_secs(each.step_secs, "none") for each in self.machines]),
            f"vs 1 {noun}": ("r", [_format_speedup(each) for each in self.machines]),
            "bound": ("r", [format_step(each.lower_bound_secs) for each in self.machines]),
            **make_columns(
                self.machines,
                [_DATA_PARALLEL, "fullest device", "on CPU", "price/h", "1M steps"],
            ),
        }
        rows = list(zip(*(cells for _, cells in columns.values()), strict=True))
        alignment = "".join(side for side, _ in columns.values())
        shown = table(list(columns), rows, alignment, width=_MAX_WIDTH)
        return "\n\n".join([shown, "\n".join(map(_wrap, self.list_findings()))])

    def list_findings(self) -> list[str]:
        """Lists sentences about the fastest and the cheapest machine, and about fewer GPUs."""
        missing = f"interrupted: {_join(self.left_out)} not searched" if self.left_out else ""
        return [*([missing] if missing else []), *self._list_comparisons()]

    def _list_comparisons(self) -> list[str]:
        fitting = [machine for machine in self.machines if machine.step_secs is not None]
        if not fitting:
            return [
                "the graph fits on none of them: take more GPUs, or GPUs with more memory",
                *describe_remarks(self.machines),
            ]
        fastest = min(fitting, key=_get_step_secs)
        step = format_step(_get_step_secs(fastest))
        limit_secs = AS_WELL_AS * _get_step_secs(fastest)
        near = [
            each.name
            for each in fitting
            if each is not fastest and _get_step_secs(each) <= limit_secs
        ]
        also = f"; within 2 % of it: {', '.join(near)}" if near else ""
        lines = [f"fastest placement: {fastest.name}, {step} per step{also}"]
        cheapest = _find_cheapest(fitting)
        if cheapest is not None:
            cost = format_price(cheapest.cost_per_million_steps)
            priced = [each for each in fitting if each.price_per_hour is not None]
            among = "" if len(priced) == len(fitting) else f" of the {len(priced)} with a price"
            if len(priced) > 1 or not among:
                lines.append(f"cheapest{among}: {cheapest.name}, {cost} per million steps")
        return [*lines, *describe_remarks(self.machines)]

    def __repr__(self) -> str:
        count = len(self.machines)
        machines = "1 machine" if count == 1 else f"{count} machines"
        return f"<MachineComparison of {machines}: {self.list_findings()[0]}>"

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form, as `compare --json` prints it."""
        return {
            "machines": [machine.to_json() for machine in self.machines],
            "findings": self.list_findings(),
            "left_out": list(self.left_out),
        }


def make_columns(
    machines: Sequence[ComparedMachine], names: Sequence[str]
) -> dict[str, tuple[str, list[str]]]:
    """Makes columns of a table of machines, without those that say nothing of any machine.

    Args:
        machines: the machines, a row each.
        names: the headers of the columns, such as "data par.".

    Returns:
        By header, the side to which the column is aligned, "l" or "r", and its cells.
    """
    columns: dict[str, tuple[str, Callable[[ComparedMachine], str]]] = {
        _ENOUGH: ("r", _format_needed),
        _DATA_PARALLEL: ("r", lambda each: _format_secs(each.data_parallel_secs, "-")),
        "fullest device": ("l", _format_memory),
        "on CPU": ("r", _format_cpu),
        "price/h": ("r", lambda each: format_price(each.price_per_hour)),
        "1M steps": ("r", lambda each: format_price(each.cost_per_million_steps)),
    }
    says_something = {
        _ENOUGH: any(each.spare for each in machines),
        _DATA_PARALLEL: any(each.data_parallel_secs is not None for each in machines),
        "fullest device": any(each.fullest_device for each in machines),
        "on CPU": any(_format_cpu(each) not in ("-", "0%") for each in machines),
        "price/h": any(each.price_per_hour is not None for each in machines),
        "1M steps": any(each.price_per_hour is not None for each in machines),
    }
    return {
        name: (columns[name][0], [columns[name][1](each) for each in machines])
        for name in names
        if says_something.get(name, True)
    }


def describe_remarks(machines: Sequence[ComparedMachine]) -> list[str]:
    """Says what follows from a comparison, in sentences without the fastest and the cheapest.

    These are about data parallelism, the work of CPUs, memory, and fewer GPUs.
    """
    fitting = [machine for machine in machines if machine.step_secs is not None]
    displaced = [
        f"{each.name} {each.displaced_share:.0%}"
        for each in fitting
        if each.displaced_share >= LEAST_DISPLACED_SHARE
    ]
    lines = _describe_one_device(fitting)
    lines += [*_describe_data_parallelism(fitting), *_describe_cheaper(fitting)]
    if displaced:
        lines.append(
            f"{', '.join(displaced)} of the step on the CPU, because the memory of the GPUs is "
            "short: take GPUs with more memory, or more of them"
        )
    larger = [
        f"{format_bytes(each.more_memory_bytes)} on each GPU of {each.name} for "
        f"{format_step(each.more_memory_secs)}"
        for each in fitting
        if each.more_memory_bytes is not None and each.more_memory_secs is not None
    ]
    if larger:
        lines.append(f"memory that would do for a shorter step: {_join(larger)}")
    lines += _describe_least_memory(machines)
    offloaded = [
        f"{format_step(each.offload_secs)} on {each.name}"
        for each in machines
        if each.offload_secs is not None
    ]
    if offloaded:
        lines.append(
            "with everything on one GPU and activations that wait on the CPU (offload), a step "
            f"takes about {', '.join(offloaded)}"
        )
    lines += _describe_cpu_work(fitting)
    lines += _describe_convolutions(machines)
    lines += _describe_fewer(fitting)
    return [*lines, *dict.fromkeys(note for each in machines for note in each.notes)]


def _describe_one_device(fitting: Sequence[ComparedMachine]) -> list[str]:
    """Says what a step without a placement takes on the machines of one GPU, and costs."""
    alone = [
        _price_step(each, each.one_device_secs)
        for each in fitting
        if each.accelerators == 1 and each.device_type == "GPU" and each.one_device_secs is not None
    ]
    if not alone:
        return []
    return [f"without a placement, with everything on the one GPU: {', '.join(alone)}"]


def _price_step(machine: ComparedMachine, step_secs: float) -> str:
    """Formats a step on a machine with its price, if the machine has one."""
    cost = compute_cost(step_secs, machine.price_per_hour)
    priced = "" if cost is None else f" ({format_price(cost)} per million)"
    return f"{machine.name} {format_step(step_secs)}{priced}"


def _find_cheapest(fitting: Sequence[ComparedMachine]) -> ComparedMachine | None:
    """Finds the machine on which a million steps cost least; None without prices."""
    priced = [machine for machine in fitting if machine.cost_per_million_steps is not None]
    return min(priced, key=lambda each: each.cost_per_million_steps or 0.0, default=None)


def _describe_least_memory(machines: Sequence[ComparedMachine]) -> list[str]:
    """Says how much memory would do on the machines on which nothing fits."""
    names: dict[str, list[str]] = {}
    for each in machines:
        if each.least_memory:
            names.setdefault(each.least_memory, []).append(each.name)
    return [f"nothing fits on {_join(alike)}: {memory}" for memory, alike in names.items()]


def _shorten_names(compared: MachineComparison) -> MachineComparison:
    """Names files and directories without their folders and ".json", if that tells them apart."""
    names = [pathlib.PurePath(each.name).name.removesuffix(".json") for each in compared.machines]
    if len(set(names)) < len(names) or names == [each.name for each in compared.machines]:
        return compared
    machines = [
        dataclasses.replace(each, name=name)
        for each, name in zip(compared.machines, names, strict=True)
    ]
    return dataclasses.replace(compared, machines=tuple(machines))


def _describe_cpu_work(fitting: Sequence[ComparedMachine]) -> list[str]:
    """Says why a CPU works where the memory of the GPUs is not short."""
    parts: dict[bool, list[str]] = {True: [], False: []}
    works = [(each.cpu_work, each.cpu_work_fits) for each in fitting if each.cpu_work]
    for work, fits in dict.fromkeys(works):
        alike = [
            each
            for each in fitting
            if (each.cpu_work, each.cpu_work_fits) == (work, fits)
            and each.cpu_share >= NOTABLE_CPU_SHARE
            and each.displaced_share < LEAST_DISPLACED_SHARE
            # The CPU does not shorten a step that is longer than that of one GPU.
            and (each.speedup is None or each.speedup >= 1)
        ]
        if alike:
            least, most = (f"{f(each.cpu_share for each in alike):.0%}" for f in (min, max))
            share = least if least == most else f"{least} to {most}"
            parts[fits].append(
                f"in {share} of the step on {_join([each.name for each in alike])}, mostly "
                f"{name_work(work)}"
            )
    lines = []
    if parts[True]:
        lines.append(
            "the CPU of the machine's description computes at the same time as the GPUs, not for "
            f"want of memory, but because the step is shorter so: {'; '.join(parts[True])}; the "
            "launches of the work of GPUs take no time of the CPU in a simulation: to plan without "
            "the CPU, pin '*' to '/GPU:*'"
        )
    alone = [
        _price_step(each, each.gpus_only_secs)
        for each in fitting
        if each.gpus_only_secs is not None
    ]
    if alone:
        lines.append(f"the best step found on GPUs alone, without the CPU: {', '.join(alone)}")
    faster = [
        f"{each.name} {format_step(each.with_cpu_secs)}"
        for each in fitting
        if each.with_cpu_secs is not None
    ]
    if faster:
        lines.append(
            f"with some work on the CPU a step is at most a tenth shorter: {_join(faster)}; as a "
            "simulation gives the launches of the work of GPUs no time of the CPU, the placement "
            "without it is chosen"
        )
    if parts[False]:
        lines.append(
            "the CPU of the machine's description computes what has no room on the GPUs in "
            f"addition: {'; '.join(parts[False])}"
        )
    return lines


def _describe_convolutions(machines: Sequence[ComparedMachine]) -> list[str]:
    """Warns where much of the work is convolutions, whose costs are too low if computed."""
    shares = [each.convolution_share for each in machines]
    if max(shares, default=0.0) < NOTABLE_CONVOLUTION_SHARE:
        return []
    least, most = (f"{share:.0%}" for share in (min(shares), max(shares)))
    share = least if least == most else f"{least} to {most}"
    return [f"convolutions are {share} of the work: {CONVOLUTION_CAVEAT}"]


def _describe_fewer(fitting: Sequence[ComparedMachine]) -> list[str]:
    """Says which machines have more accelerators than the graph needs."""
    smaller: dict[str, list[tuple[str, str]]] = {}
    spares: dict[str, list[str]] = {}
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
            count = _count(enough, enough.accelerators)
            counts = f"{count} would do as well as {largest.accelerators} for a placed step"
            smaller.setdefault(counts, []).append((enough.name, largest.name))
        # The smallest machine that is enough says more of larger ones.
        for each in alike:
            if each.accelerators == enough.accelerators and each.spare:
                most = "at most " if each.needed > 1 else ""
                counts = f"{most}{_count(each, each.needed)} of the {each.accelerators} of "
                spares.setdefault(counts, []).append(each.name)
    lines = []
    for counts, pairs in smaller.items():
        (small, large), *others = pairs
        first = f"{small} is within 2 % of {large}"
        lines.append(f"{counts}: {_join([first, *(f'{a} of {b}' for a, b in others)])}")
    if spares:
        few = _join([f"{counts}{_join(names)}" for counts, names in spares.items()])
        lines.append(f"{_ENOUGH}: {few} would do as well, as a placement on so few is within 2 %")
    return lines


def _describe_cheaper(fitting: Sequence[ComparedMachine]) -> list[str]:
    """Says which machines may be cheaper by data parallelism than the cheapest placement."""
    cheapest = _find_cheapest(fitting)
    costs = {
        each.name: cost
        for each in fitting
        if (cost := each.data_parallel_cost_per_million_steps) is not None
    }
    if not costs or cheapest is None:
        return []
    at_least = [
        f"{name} {format_price(costs[name])}" for name in sorted(costs, key=costs.__getitem__)
    ]
    sentence = f"a million steps of data parallelism cost at least: {', '.join(at_least)}"
    if min(costs.values()) >= (cheapest.cost_per_million_steps or 0.0):
        sentence += f"; none is cheaper than the placement on {cheapest.name}"
    return [sentence]


def _wrap(sentence: str) -> str:
    """Wraps a sentence to the width of the terminal, and at most to that of the table."""
    width = min(terminal_width() or _MAX_WIDTH, _MAX_WIDTH)
    # Not at hyphens, which names of machines have.
    return textwrap.fill(sentence, width, subsequent_indent=_INDENT, break_on_hyphens=False)


def _join(names: Sequence[str]) -> str:
    """Joins names to "A, B and C"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _count(machine: ComparedMachine, number: int) -> str:
    """Formats a number of accelerators, such as "1 GPU" or "4 GPUs"."""
    return f"{number} {machine.device_type}{'' if number == 1 else 's'}"


def _describe_data_parallelism(fitting: Sequence[ComparedMachine]) -> list[str]:
    """Says where data parallelism may be faster than the placement, and what it is."""
    bounded = [machine for machine in fitting if machine.data_parallel_secs is not None]
    short = [machine.name for machine in fitting if machine.lacks_shared_memory]
    lines = []
    if short:
        lines.append(
            f"no data parallelism on {_join(short)}: the whole model with a share of the batch "
            "does not fit on each GPU"
        )
    if not bounded:
        return lines
    ratios = {
        machine.name: _get_step_secs(machine) / max(machine.data_parallel_secs or 0.0, 1e-300)
        for machine in bounded
    }
    slower = [
        f"up to {ratio:.2g} times on {name}"
        for name, ratio in ratios.items()
        if ratio > _CLEARLY_ABOVE
    ]
    return [
        *lines,
        *([f"data parallelism may be faster, try it, too: {_join(slower)}"] if slower else []),
        f"{_DATA_PARALLEL}: no step of data parallelism is shorter, with the whole model on every "
        "device and a share of the batch for each, of which launches of operations and updates of "
        "variables take no less",
    ]


def _get_step_secs(machine: ComparedMachine) -> float:
    assert machine.step_secs is not None
    return machine.step_secs


def _format_secs(secs: float | None, missing: str) -> str:
    return missing if secs is None else format_step(secs)


def _format_speedup(machine: ComparedMachine) -> str:
    if machine.is_divided:
        return "-"
    if machine.one_device_secs is None:
        return "too small"
    return "-" if machine.speedup is None else f"{machine.speedup:.2f}x"


def _format_needed(machine: ComparedMachine) -> str:
    if machine.step_secs is None or machine.accelerators == 0:
        return "-"
    # One GPU is always compared; no search proves that other numbers would not do.
    is_known = machine.needed == 1 or (machine.spare == 0 and machine.accelerators == 2)
    return str(machine.needed) if is_known else f"≤ {machine.needed}"


def _format_cpu(machine: ComparedMachine) -> str:
    return "-" if machine.device_type != "GPU" else f"{machine.cpu_share:.0%}"


def _format_memory(machine: ComparedMachine) -> str:
    if not machine.fullest_device:
        return "-"
    share = machine.peak_bytes / max(machine.memory_bytes, 1)
    return f"{machine.fullest_device} {share:.0%} of {format_bytes(machine.memory_bytes)}"


def format_price(price: float | None) -> str:
    """Formats a price in any currency, large ones without cents."""
    if price is None:
        return "-"
    return f"{price:,.0f}" if price >= _LEAST_PRICE_WITHOUT_CENTS else f"{price:.2f}"
