"""Computed costs against published step times: the papers' models on one device.

Builds the models with the papers' settings, computes what a step costs on machines that are not
there, simulates the step with everything on one GPU (or on the CPU), and puts step time and memory
next to what was published. Nothing is fitted to a model: the numbers of a class of devices are the
same for all of them. `tf_placer.costs.analytic` says how costs are computed, and
`tf_placer/machines/data/machines.json` where those numbers are from.
"""

from __future__ import annotations

import dataclasses
import os
import textwrap

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.harness.table_file import write_table
from benchmarks.models.catalogue import MODELS, build_model
from tf_placer.costs.costed_graph import CostedGraph, cost_graph
from tf_placer.inputs.sources import read_source
from tf_placer.machines.catalogue import described_machine
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.table import table
from tf_placer.text.units import format_bytes, format_step

__all__ = ["main"]

_COLOCRL = "Device Placement Optimization with Reinforcement Learning, Table 2"
_POST = "Post: Device Placement with Cross-Entropy Minimization and PPO, Table 1"
_TENSORFLOW = "TensorFlow's benchmarks of 2017, K80, batch 32: 29.3 images/s"
_OUT_OF_MEMORY = None
_MODELS = {"RNNLM": "rnnlm_2", "NMT": "nmt_2", "Inception-V3": "inception_v3"}


@dataclasses.dataclass(frozen=True)
class _Published:
    """A published step time.

    Attributes:
        model: which model.
        machine: which machine of the catalogue.
        device: "GPU", with what has no kernel there on the CPU, or "CPU".
        step_secs: seconds per step; None where it did not fit into memory.
        source: who published it.
    """

    model: str
    machine: str
    device: str
    step_secs: float | None
    source: str


_PUBLISHED = (
    _Published("RNNLM", "1xK80", "GPU", 1.57, _COLOCRL),
    _Published("NMT", "1xK80", "GPU", _OUT_OF_MEMORY, _COLOCRL),
    _Published("NMT", "post-1xK80", "GPU", _OUT_OF_MEMORY, _POST),
    _Published("Inception-V3", "1xK80", "GPU", 4.60, _COLOCRL),
    _Published("Inception-V3", "post-1xK80", "GPU", 1.79, _POST),
    _Published("Inception-V3", "1xK80", "GPU", 32 / 29.3, _TENSORFLOW),
    _Published("RNNLM", "1xK80", "CPU", 6.89, _COLOCRL),
    _Published("NMT", "1xK80", "CPU", 10.72, _COLOCRL),
    _Published("Inception-V3", "1xK80", "CPU", 26.21, _COLOCRL),
)

_DIFFERENCES = (
    "The three published times of Inception-V3 on such a GPU are as 1 : 1.6 : 4.2: the code "
    "weighs more than the hardware. What is computed is nearest to TensorFlow's own "
    "benchmark. It is below all of them, as kernels differ and the framework takes time between "
    "them, of which only the launch is in the model.",
    "RNNLM fits by a hair: the gradients of the weights, one for each layer and step, wait until "
    "AddN sums them.",
    "NMT fits, though both papers say that theirs does not. Their code is not public; the first "
    "counts 22,097 operations, more than there are here. The largest tensors, the gradients of the "
    "softmax weights of 40 steps, are summed and freed here before those of the LSTM layers come.",
    "On the CPU the TensorFlow of 2016 was far from what the processor can do, above all in "
    "convolutions. That contractions reach 0.4 of its peak is an assumption for all processors.",
)


def main() -> None:
    """Prints the comparison."""
    rows = []
    for name, entry in _MODELS.items():
        model = build_model(entry)
        source = read_source(model.graph, [model.train_op, model.loss])
        of_model = [published for published in _PUBLISHED if published.model == name]
        costed = {
            machine: cost_graph(source, described_machine(machine), steps=1)
            for machine in dict.fromkeys(published.machine for published in of_model)
        }
        rows += [_row(published, costed[published.machine]) for published in of_model]
    headers = ["model", "on", "step", "published", "ratio", "holds", "of", "fits", "published by"]
    notes = [f"{MODELS[entry].title}: {MODELS[entry].note}" for entry in _MODELS.values()]
    lines = [
        textwrap.fill(text, 100, initial_indent="- ", subsequent_indent="  ")
        for text in (*notes, *_DIFFERENCES)
    ]
    title = "\nratio: simulated by published. Models, and where it differs:"
    write_table("\n".join([table(headers, rows, "llrrrrrll"), title, *lines]))


def _row(published: _Published, costed: CostedGraph) -> list[str | None]:
    """Simulates a step and puts it next to what was published."""
    problem, row = costed.placed(None)
    if published.device == "CPU":
        row = np.zeros_like(row)
    step = Simulator(problem).trace(row)
    kinds = [device.type for device in costed.machine.devices]
    device = kinds.index(published.device)
    capacities = [each.memory_bytes for each in problem.devices]
    fits = (step.peak_bytes <= capacities).all()
    ratio = None
    if published.step_secs is not None:
        ratio = f"{step.step_secs / published.step_secs:.2f}"
    return [
        published.model,
        f"{costed.machine.devices[device].model} of {published.machine}",
        format_step(step.step_secs),
        "out of memory" if published.step_secs is None else format_step(published.step_secs),
        ratio,
        format_bytes(int(step.peak_bytes[device])),
        format_bytes(capacities[device]),
        "yes" if fits else "no",
        published.source,
    ]


if __name__ == "__main__":
    main()
