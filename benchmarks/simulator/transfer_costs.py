"""What sending a tensor costs both processes of `local:2`, by how many are sent, and when.

Tensors go from one process to the other while both multiply matrices, one or several at a time,
after more or fewer products; beside it the same products and tensors, none of which is sent. The
difference of the processor time that a process uses, divided by the number of tensors, is what it
loses to each: the mean of both directions and of both ends. "Rule" is what the simulator takes from
its operations, with what `calibrate_links` measured in the same minute.

Fits the power by which the overhead of the smallest tensors grows with the time since the last one.
Writes a table.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import pathlib
import statistics
from collections.abc import Mapping, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from benchmarks.harness.table_file import write_table
from tf_placer.costs.link_calibration import calibrate_links
from tf_placer.costs.tensor_streams import make_factor, make_values, tensor_stream
from tf_placer.environments.environment import Failure
from tf_placer.environments.session import MeasuringProtocol, SessionEnvironment
from tf_placer.environments.step_profile import OperationTimes
from tf_placer.inputs.step import Step
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Link, Machine
from tf_placer.problem.transfer_overhead import overhead_part
from tf_placer.scratch import scratch_directory
from tf_placer.text.table import table

__all__ = ["Cost", "Growth", "costs", "fit_growth", "main"]

tf1 = tf.compat.v1

_NUM_PRODUCTS = 128
# How many tensors are made at a time, and how many products each process computes in between.
_MANNERS = ((1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (1, 32), (4, 16), (16, 32), (64, 128))
_SIZES = (4, 128 * 2**10, 2**20)
_POWERS = np.arange(1, 21) / 20
_PROTOCOL = MeasuringProtocol(steps=15, dropped=3)
# One of `_MANNERS`, source, destination, bytes, and whether tensors are sent.
_Key = tuple[tuple[int, int], str, str, int, bool]


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a tensor of some bytes costs that is sent in some manner.

    Attributes:
        at_a_time: how many tensors are made at a time.
        products_between: how many products each process computes in between.
        size_bytes: of a tensor.
        gap_secs: how long no tensor is on its way then, as the simulator counts.
        lost_secs: processor time that a process loses to a tensor.
        rule_secs: what the simulator takes.
    """

    at_a_time: int
    products_between: int
    size_bytes: int
    gap_secs: float
    lost_secs: float
    rule_secs: float


def costs(machine: Machine, times: Mapping[_Key, OperationTimes]) -> list[Cost]:
    """Computes what tensors cost.

    Args:
        machine: two devices with measured links.
        times: of streams of `_NUM_PRODUCTS` products.
    """
    found = []
    for manner, size in dict.fromkeys((key[0], key[3]) for key in times):
        ends = []
        for link in machine.links:
            stream = (manner, link.source, link.destination, size)
            both = times[*stream, True], times[*stream, False]
            ends += [_cost_of_end(machine, link, end, manner, size, both) for end in (0, 1)]
        found.append(Cost(*manner, size, *map(statistics.fmean, zip(*ends, strict=True))))
    return found


def _cost_of_end(
    machine: Machine,
    link: Link,
    end: int,
    manner: tuple[int, int],
    size: int,
    times: tuple[OperationTimes, OperationTimes],
) -> tuple[float, float, float]:
    """Computes the last three attributes of a `Cost` for one process, from times sent and kept."""
    at_a_time, products_between = manner
    num_gaps = _NUM_PRODUCTS // products_between
    sent, kept = times
    used_secs = np.subtract(sent.cpu_secs[f"task {end}"], kept.cpu_secs[f"task {end}"])
    lost_secs = float(np.median(used_secs)) / (num_gaps * at_a_time)
    computed_secs = statistics.median(kept.secs) / num_gaps
    bytes_secs = size / link.bandwidth_bytes_per_sec
    # They go one after the other.
    gap_secs = max(computed_secs + at_a_time * (lost_secs - link.latency_secs - bytes_secs), 0.0)
    device = machine.devices[end]
    assert device.transfer_share is not None and device.transfer_overhead_secs is not None
    part = (overhead_part(gap_secs) + (at_a_time - 1) * overhead_part(0.0)) / at_a_time
    rule_secs = device.transfer_share * bytes_secs + part * device.transfer_overhead_secs
    return gap_secs, lost_secs, rule_secs


@dataclasses.dataclass(frozen=True)
class Growth:
    """How what a tensor costs grows with the time since the last one.

    Attributes:
        power: of that time.
        least_secs: what it costs right after the last one.
        most_secs: what it costs 10 ms after it.
    """

    power: float
    least_secs: float
    most_secs: float


def fit_growth(found: Sequence[Cost]) -> Growth:
    """Finds the power of `overhead_part` that fits costs best, by least squares of relative errors.

    Args:
        found: of tensors of one size.
    """
    lost_secs = np.array([cost.lost_secs for cost in found])
    parts = np.minimum([cost.gap_secs / 0.01 for cost in found], 1.0)
    at_a_time = np.array([cost.at_a_time for cost in found])
    fits = []
    for power in _POWERS:
        terms = np.stack([np.ones(len(found)), parts**power / at_a_time], axis=1)
        factors = np.linalg.lstsq(terms / lost_secs[:, None], np.ones(len(found)), rcond=None)[0]
        error = float(np.square(terms @ factors / lost_secs - 1).sum())
        fits.append((error, Growth(float(power), float(factors[0]), float(factors.sum()))))
    return min(fits, key=lambda fit: fit[0])[1]


def _measure(machine: Machine) -> dict[_Key, OperationTimes]:
    with tf.Graph().as_default() as graph, scratch_directory(None) as directory:
        streams = _streams([device.name for device in machine.devices])
        step = Step(tuple(streams.values())[:1], {}, (tf1.global_variables_initializer().name,))
        path = pathlib.Path(directory, "graph.pb")
        path.write_bytes(graph.as_graph_def().SerializeToString())
        with SessionEnvironment(
            path, step, machine, lambda _: {}, protocol=_PROTOCOL, timeout_secs=600.0
        ) as environment:
            times = environment.time_each(list(streams.values()))
    if isinstance(times, Failure):
        raise RuntimeError(f"tensors cannot be sent: {times.message}")
    return dict(zip(streams, times, strict=True))


def _streams(names: Sequence[str]) -> dict[_Key, str]:
    """Makes the operations that send tensors from device to device, or do not, in all manners."""
    streams = {}
    factors = {name: make_factor(f"factor_{number}", name) for number, name in enumerate(names)}
    for (source, destination), size in itertools.product(itertools.permutations(names, 2), _SIZES):
        values = make_values(f"values_{names.index(source)}_{size}", source, size)
        for manner, is_sent in itertools.product(_MANNERS, (True, False)):
            at_a_time, products_between = manner
            counts = np.repeat(np.arange(1, _NUM_PRODUCTS + 1, products_between), at_a_time)
            stream = tensor_stream(
                *(values, factors, source, destination),
                is_sent=is_sent,
                num_products=_NUM_PRODUCTS,
                made_after=counts.tolist(),
            )
            streams[manner, source, destination, size, is_sent] = stream.name
    return streams


def _table(found: Sequence[Cost]) -> str:
    headers = ["at a time", "products between", "gap in ms"]
    for size in _SIZES:
        headers += [f"{_name(size)}: us lost", "rule"]
    rows = []
    for manner in _MANNERS:
        of = {c.size_bytes: c for c in found if (c.at_a_time, c.products_between) == manner}
        row = [*map(str, manner), f"{1e3 * of[_SIZES[0]].gap_secs:.2f}"]
        for size in _SIZES:
            row += [f"{1e6 * of[size].lost_secs:.0f}", f"{1e6 * of[size].rule_secs:.0f}"]
        rows.append(row)
    growth = fit_growth([cost for cost in found if cost.size_bytes == _SIZES[0]])
    return (
        f"{table(headers, rows, 'r' * len(headers))}\n\n"
        f"What a tensor of {_name(_SIZES[0])} costs grows with the time since the last one by the "
        f"power {growth.power:.2f},\nfrom {1e6 * growth.least_secs:.0f} us to "
        f"{1e6 * growth.most_secs:.0f} us after 10 ms, says the best fit."
    )


def _name(size: int) -> str:
    return f"{size} B" if size < 2**10 else f"{size // 2**10} KiB"


def main() -> None:
    """Measures, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out_dir", default="benchmarks/results/transfer_costs")
    args = parser.parse_args()
    machine = calibrate_links(find_machine("local:2"))
    found = costs(machine, _measure(machine))
    write_table(_table(found), pathlib.Path(args.out_dir, "table.txt"))


if __name__ == "__main__":
    main()
