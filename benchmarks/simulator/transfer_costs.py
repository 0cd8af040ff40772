"""What sending a tensor costs both processes of `local:2`, by how far apart tensors are sent.

Sixteen tensors go from one process to the other while both multiply matrices, more or fewer for
each tensor; beside it the same products and tensors, none of which is sent. The difference of the
processor time that a process uses, divided by the number of tensors, is what it loses to each: the
mean of both directions and of both ends. "Rule" is what the simulator takes from its operations,
with what `calibrate_links` measured in the same minute, from four products each.

Writes a table and a picture.
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

import tensorflow as tf

from benchmarks.harness.pictures import save_picture
from benchmarks.harness.provenance import provenance
from tf_placer.costs.link_calibration import calibrate_links
from tf_placer.costs.tensor_streams import make_factor, make_values, tensor_stream
from tf_placer.environments.environment import Failure
from tf_placer.environments.session import MeasuringProtocol, SessionEnvironment
from tf_placer.environments.step_profile import OperationTimes
from tf_placer.files import write_json
from tf_placer.inputs.step import Step
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Machine
from tf_placer.problem.transfer_overhead import overhead_part
from tf_placer.scratch import scratch_directory
from tf_placer.text.table import table

__all__ = ["Cost", "costs", "main"]

tf1 = tf.compat.v1

_PRODUCTS = (0, 1, 2, 4, 8, 16, 32)
_SIZES = (4, 128 * 2**10, 2**20)
_NUM_TENSORS = 16
_PROTOCOL = MeasuringProtocol(steps=15, dropped=3)
# Products for each tensor, source, destination, bytes, and whether tensors are sent.
_Key = tuple[int, str, str, int, bool]


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a tensor of some bytes costs, at some distance from the next.

    Attributes:
        products_each: how many products each process computes for a tensor.
        size_bytes: of the tensor.
        apart_secs: how far apart tensors are made that are not sent.
        lost_secs: processor time that a process loses to a tensor.
        rule_secs: what the simulator takes.
    """

    products_each: int
    size_bytes: int
    apart_secs: float
    lost_secs: float
    rule_secs: float


def costs(machine: Machine, times: Mapping[_Key, OperationTimes]) -> list[Cost]:
    """Computes what tensors cost.

    Args:
        machine: two devices with measured links.
        times: of streams of `_NUM_TENSORS` tensors.
    """
    found = []
    for products_each, size in dict.fromkeys((key[0], key[3]) for key in times):
        lost, apart, rule = [], [], []
        for link in machine.links:
            stream = (products_each, link.source, link.destination, size)
            sent, kept = times[*stream, True], times[*stream, False]
            apart.append(statistics.median(kept.secs) / _NUM_TENSORS)
            secs = link.latency_secs + size / link.bandwidth_bytes_per_sec
            for task, device in enumerate(machine.devices):
                used = sent.cpu_secs[f"task {task}"] - kept.cpu_secs[f"task {task}"]
                lost.append(used / _NUM_TENSORS)
                # Those that are made at once wait for each other.
                period = apart[-1] + lost[-1]
                part = overhead_part(period - secs) if products_each else 0.0
                assert device.transfer_share is not None
                assert device.transfer_overhead_secs is not None
                rule.append(device.transfer_share * secs + part * device.transfer_overhead_secs)
        found.append(Cost(products_each, size, *map(statistics.fmean, (apart, lost, rule))))
    return found


def _measure(machine: Machine) -> dict[_Key, OperationTimes]:
    names = [device.name for device in machine.devices]
    streams: dict[_Key, str] = {}
    with tf.Graph().as_default() as graph, scratch_directory(None) as directory:
        factors = {name: make_factor(f"factor_{number}", name) for number, name in enumerate(names)}
        for (source, destination), size in itertools.product(
            itertools.permutations(names, 2), _SIZES
        ):
            values = make_values(f"values_{names.index(source)}_{size}", source, size)
            for products_each, is_sent in itertools.product(_PRODUCTS, (True, False)):
                stream = tensor_stream(
                    *(values, factors, source, destination),
                    is_sent=is_sent,
                    num_tensors=_NUM_TENSORS,
                    products_each=products_each,
                )
                streams[products_each, source, destination, size, is_sent] = stream.name
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


def _table(found: Sequence[Cost]) -> str:
    headers = ["products each", "ms apart"]
    for size in _SIZES:
        headers += [f"{_name(size)}: us lost", "rule"]
    rows = []
    for products_each in _PRODUCTS:
        of = {cost.size_bytes: cost for cost in found if cost.products_each == products_each}
        apart = f"{1e3 * of[_SIZES[0]].apart_secs:.2f}" if products_each else "at once"
        row = [str(products_each), apart]
        for size in _SIZES:
            row += [f"{1e6 * of[size].lost_secs:.0f}", f"{1e6 * of[size].rule_secs:.0f}"]
        rows.append(row)
    return table(headers, rows, "r" * len(headers))


def _name(size: int) -> str:
    return f"{size} B" if size < 2**10 else f"{size // 2**10} KiB"


def _plot(path: pathlib.Path, found: Sequence[Cost]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), constrained_layout=True)
    for number, size in enumerate(_SIZES):
        of = [cost for cost in found if cost.size_bytes == size and cost.products_each]
        apart_ms = [1e3 * cost.apart_secs for cost in of]
        axes.plot(
            apart_ms, [1e6 * c.lost_secs for c in of], f"C{number}o", label=f"{_name(size)}, lost"
        )
        axes.plot(
            apart_ms, [1e6 * c.rule_secs for c in of], f"C{number}--", label=f"{_name(size)}, rule"
        )
    axes.set_xscale("log")
    axes.set_xlabel("ms between tensors")
    axes.set_ylabel("us that an end loses to a tensor")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")
    save_picture(figure, path, dpi=120)


def main() -> None:
    """Measures, and writes the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out_dir", default="benchmarks/results/transfer_costs")
    args = parser.parse_args()
    machine = calibrate_links(find_machine("local:2"))
    found = costs(machine, _measure(machine))
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    text = _table(found)
    (out / "table.txt").write_text(f"{text}\n")
    write_json(out / "provenance.json", provenance())
    _plot(out / "lost.png", found)
    print(text)


if __name__ == "__main__":
    main()
