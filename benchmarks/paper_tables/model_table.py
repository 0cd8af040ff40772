"""A table of the catalog's models: operations, groups, parameters, and a step on one GPU.

Builds each model at full size in a process of its own, computes what a step costs on a machine of
the catalog, and simulates it with everything on the first GPU, and on the CPU what has no kernel
there. Prints a Markdown table beside the numbers that the papers print, and writes it with the
reasons for the differences. table.json keeps what was counted: at another commit, all models are
counted again.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.harness.arguments import run_parser
from benchmarks.harness.provenance import provenance
from benchmarks.harness.run_pool import Call, run_calls
from benchmarks.harness.table_file import write_table
from benchmarks.models.catalog import MODELS, build_model
from benchmarks.paper_tables.published import COLOCRL, find_published
from tf_placer.files import read_json, write_json
from tf_placer.machines.catalog import make_described_machine
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_bytes, format_step

__all__ = ["ModelCounts", "count_missing", "count_model", "main", "model_table"]

_LIMIT_SECS = 3600.0
_MACHINE = "1xK80"
# The models of the only table of counts that there is.
_PUBLISHED = {"rnnlm_2": "RNNLM", "nmt_2": "NMT", "inception_v3": "Inception-V3"}
_REASONS: Mapping[str, str] = {
    "rnnlm_2": "groups are the 80 cells, 40 softmax steps, one lookup for all steps and what is "
    "between them; the paper has a group for each of 40 lookups. Its code, which is not public, "
    "has a third more operations. The paper runs it on one K80, where ours does not fit without "
    "Grappler.",
    "nmt_2": "groups are the 160 cells, 40 attention steps and as many mixes of their answers, 40 "
    "softmax steps, a lookup for each side and what is between them. The rules of the paper give "
    "320 with a lookup for each step, but it has 280, so that something is together there that is "
    "not here. It says that the model does not fit on a GPU; here it does.",
    "inception_v3": "batch normalization is one fused operation here and a dozen in code of that "
    "time, forward and backward, and there are neither summaries nor a reader of images. The "
    "groups, branches above all, are as many.",
    "gnmt_4": "EAGLE reports 1.4 s at best on four P100 and that it does not fit on one. With the "
    "256 units that it states, a step is much lighter.",
    "gnmt_4_wide": "EAGLE's are P100 of 12 GB by its processor and memory (the cluster Cedar of "
    "Compute Canada), on which this does not fit.",
    "bert_base": "EAGLE says more than 10,000 operations, and that it does not fit on one GPU.",
}


@dataclasses.dataclass(frozen=True)
class ModelCounts:
    """The contents of a model.

    Attributes:
        name: of the catalog.
        operations: of the graph.
        step_operations: of these, those that a step needs.
        colocation_groups: of operations that must share a device, among those of a step.
        groups: what is placed, by the rules of the first paper.
        parameters: trainable numbers.
        step_secs: simulated step with everything on one GPU.
        peak_bytes: what the GPU holds at most.
        capacity_bytes: what it could hold.
    """

    name: str
    operations: int
    step_operations: int
    colocation_groups: int
    groups: int
    parameters: int
    step_secs: float
    peak_bytes: int
    capacity_bytes: int

    @property
    def fits(self) -> bool:
        """True if a step fits on one GPU."""
        return self.peak_bytes <= self.capacity_bytes


def count_model(name: str, machine_name: str, *, small: bool = False) -> ModelCounts:
    """Builds a model and counts.

    Args:
        name: of the catalog.
        machine_name: of the catalog of machines; with a GPU.
        small: the small size.

    Raises:
        ValueError: there is no such model.
        MachineError: there is no such machine.
    """
    import tensorflow as tf

    from tf_placer.costs.costed_graph import cost_graph
    from tf_placer.inputs.workload import read_workload
    from tf_placer.simulation.simulator import Simulator

    machine = make_described_machine(machine_name)
    model = build_model(name, small=small)
    with model.graph.as_default():
        variables = tf.compat.v1.trainable_variables()
    source = read_workload(model.graph, [model.train_op, model.loss])
    costed = cost_graph(source, machine, steps=1)
    problem, placement = costed.build_placed_problem(None)
    step = Simulator(problem).trace(placement)
    gpu = next(i for i, device in enumerate(machine.devices) if device.type == "GPU")
    return ModelCounts(
        name=name,
        operations=source.op_graph.num_operations,
        step_operations=problem.num_operations,
        colocation_groups=len(np.unique(problem.groups)),
        groups=costed.grouped.num_decisions,
        parameters=sum(variable.shape.num_elements() for variable in variables),
        step_secs=float(step.step_secs),
        peak_bytes=int(step.peak_bytes[gpu]),
        capacity_bytes=int(problem.devices[gpu].memory_bytes),
    )


def model_table(counts: Sequence[ModelCounts]) -> str:
    """Formats the Markdown table of models of full size, beside what is printed."""
    headers = ["model", "operations", "printed", "of a step", "must share a device"]
    headers += ["groups", "printed", "parameters", "one GPU holds", "step", "fits"]
    rows = []
    for each in counts:
        rows.append(
            [
                MODELS[each.name].title,
                f"{each.operations:,}",
                _format_published(each.name, "graph", "num_operations"),
                f"{each.step_operations:,}",
                f"{each.colocation_groups:,}",
                f"{each.groups:,}",
                _format_published(each.name, "co-location groups", "num_groups"),
                f"{each.parameters / 1e6:,.1f} M",
                format_bytes(each.peak_bytes),
                format_step(each.step_secs),
                "yes" if each.fits else "no",
            ]
        )
    return markdown_table(headers, rows, "lrrrrrrrrrl")


def _format_published(name: str, method: str, metric: str) -> str:
    if name not in _PUBLISHED:
        return ""
    found = find_published(COLOCRL, "Table 1", _PUBLISHED[name], method, metric=metric)
    return "" if found is None or found.value is None else f"{found.value:,.0f}"


def _write_counts(name: str, path: str) -> None:
    """Counts one model, in a process of its own, and writes the counts."""
    write_json(path, dataclasses.asdict(count_model(name, _MACHINE)))


def _count_each(names: Sequence[str]) -> Iterator[ModelCounts]:
    """Counts the models one after the other; says which could not be counted."""
    with tempfile.TemporaryDirectory() as directory:
        paths = [os.path.join(directory, f"{name}.json") for name in names]
        calls = [
            Call(_write_counts, (name, path), _LIMIT_SECS)
            for name, path in zip(names, paths, strict=True)
        ]
        for number, ended in enumerate(run_calls(calls, 1), 1):
            outcome = ended.problem or "counted"
            print(
                f"[{number}/{len(names)}] {names[ended.index]}: {outcome}",
                file=sys.stderr,
                flush=True,
            )
            if ended.problem is None:
                yield ModelCounts(**read_json(paths[ended.index]))


def _page(counts: Sequence[ModelCounts], commit: str) -> str:
    """Formats the table, what is assumed, and at which commit models were counted."""
    lines = [
        "Models of full size. Step and memory are computed: everything on one K80 of "
        f"`{_MACHINE}`, and on the CPU what has no kernel there. Memory is what tensors hold at "
        "once, without the fragmentation of allocators. It fits if that is no more than 97 % of "
        "what TensorFlow manages of the GPU.",
        "",
        model_table(counts),
        "",
        "Printed: table 1 of Device Placement Optimization with Reinforcement Learning. Where we "
        "differ from what the papers say, and why:",
        "",
        *(
            f"- {MODELS[each.name].title}: {_REASONS[each.name]}"
            for each in counts
            if each.name in _REASONS
        ),
        "",
        "Settings:",
        "",
        *(f"- {MODELS[each.name].title}: {MODELS[each.name].note}" for each in counts),
        "",
    ]
    return "\n".join([*lines, f"Counted at commit {commit}."])


def count_missing(
    path: pathlib.Path, count: Callable[[Sequence[str]], Iterable[ModelCounts]]
) -> None:
    """Counts the models that a file lacks, or all if it is of another commit.

    Args:
        path: the file, which is written after each model, so that a later call goes on there.
        count: counts models by name.

    Raises:
        OSError: the file cannot be read or written.
        ValueError: it is no JSON file.
    """
    made = provenance()
    kept = read_json(path) if path.exists() else {}
    # A tree with changes ("+") has no commit that says what was counted.
    is_same = kept.get("commit") == made["commit"] and not made["commit"].endswith("+")
    models = kept["models"] if is_same else []
    missing = [name for name in MODELS if name not in {each["name"] for each in models}]
    for counts in count(missing):
        models.append(dataclasses.asdict(counts))
        write_json(path, {"format": 1, **made, "machine": _MACHINE, "models": models})


def main() -> None:
    """Counts the models, prints the table and writes it."""
    parser = run_parser(__doc__, "models")
    parser.add_argument(
        "--models", help="some of the catalog, by comma: count them and print only their rows"
    )
    args = parser.parse_args()
    if args.models is not None:
        names = args.models.split(",")
        if unknown := [name for name in names if name not in MODELS]:
            parser.error(f"there is no model {unknown[0]!r}; there are {', '.join(MODELS)}")
        print(model_table(list(_count_each(names))))
        return
    path = pathlib.Path(args.out_dir, "table.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not args.only_kept:
        count_missing(path, _count_each)
    kept = read_json(path)
    counts = {each["name"]: ModelCounts(**each) for each in kept["models"]}
    ordered = [counts[name] for name in MODELS if name in counts]
    write_table(_page(ordered, kept["commit"]), path.parent / "table.md")


if __name__ == "__main__":
    main()
