"""A table of the reasons why baselines were slower, one beside the other, in the papers than here.

Each reason is a setting of the machine, of the model, or of placing by name, with one value for all
rows. The rows of the papers' tables are simulated without any of them, with each alone, and with
all, which are the machines `colocrl-2017-NxK80`, `post-2018-NxK80` and `eagle-2020-NxP100`.
Everything is computed, and nothing is random. causes.json keeps the step times by model: delete it
when models, machines, costs or the simulator change.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.harness.arguments import run_parser
from benchmarks.harness.provenance import provenance
from benchmarks.harness.run_pool import Call, run_calls
from benchmarks.harness.table_file import write_table
from benchmarks.paper_tables.causes_report import CauseStep, causes_page
from benchmarks.paper_tables.published_tables import TABLES, Column, PaperTable, Row
from benchmarks.problems.paper import PaperProblem
from graph_passes.pipeline import GroupedGraph, group_operations
from tf_placer.files import read_json, write_json
from tf_placer.machines.catalog import make_described_machine
from tf_placer.machines.machine import DeviceClass, Link, Machine

__all__ = ["CAUSES", "Cause", "main", "mix_machines", "simulate_model"]

_LIMIT_SECS = 7200.0
_TABLES = ("colocrl_2", "post_1", "eagle_4")
# The machine of a row as it was, by the beginning of the name of the machine that is the default.
_PERIODS = (("post-", "post-2018-"), ("eagle-", "eagle-2020-"), ("", "colocrl-2017-"))
_SINGLE_DEVICE = ("single_cpu", "single_gpu")
_PARTITIONERS = ("scotch", "mincut", "metis")
_FIRST_GPU = 1


@dataclasses.dataclass(frozen=True)
class Cause:
    """A reason why placements were slower.

    Attributes:
        name: for files and columns.
        title: for people.
        class_fields: the fields of device classes that it sets.
        peer_links: the fields of links between GPUs that it sets.
        links: the fields of all links that it sets.
    """

    name: str
    title: str
    class_fields: tuple[str, ...] = ()
    peer_links: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


CAUSES = (
    Cause("sums", "sums of gradients are on the first GPU, because their names belong to no layer"),
    Cause("operations", "partitioners cut single operations, each with its gradients"),
    Cause("stream", "copies run in the stream of the operations", ("copies_in_stream",)),
    Cause("staging", "copies between GPUs pass the host", peer_links=("bandwidth_bytes_per_sec",)),
    Cause("polling", "finished copies are noticed late", links=("latency_secs",)),
    Cause("products", "small matrix products are slower", ("full_product_size",)),
    Cause("processor", "the CPU is weaker", ("compute_fraction", "bandwidth_fraction")),
    Cause("normalization", "batch normalization is not fused"),
    Cause("workspace", "convolutions take a workspace", ("workspace_bytes",)),
)
"""All causes, in the order of the columns."""
_NAMES = tuple(cause.name for cause in CAUSES)


def mix_machines(base: Machine, period: Machine, names: Sequence[str]) -> Machine:
    """Makes a machine that has some of the settings of another with the same devices.

    Args:
        base: the machine without any cause.
        period: the machine with all of them.
        names: the causes whose settings are those of `period`.
    """
    causes = [cause for cause in CAUSES if cause.name in names]
    class_fields = [field for cause in causes for field in cause.class_fields]
    classes: dict[str, DeviceClass] = {}
    for ours, theirs in zip(base.devices, period.devices, strict=True):
        own, other = base.find_class(ours), period.find_class(theirs)
        classes[own.name] = dataclasses.replace(
            own, **{field: getattr(other, field) for field in class_fields}
        )

    def mix_links(own: Link, other: Link) -> Link:
        is_peer = not any(end == base.devices[0].name for end in (own.source, own.destination))
        fields = [field for cause in causes for field in cause.links]
        fields += [field for cause in causes if is_peer for field in cause.peer_links]
        return dataclasses.replace(own, **{field: getattr(other, field) for field in fields})

    links = tuple(map(mix_links, base.links, period.links))
    return dataclasses.replace(base, links=links, classes=tuple(classes.values()))


def find_period(machine_name: str) -> str:
    """Names the machine with all causes of the machine of a row."""
    for prefix, period in _PERIODS:
        if machine_name.startswith(prefix):
            return period + machine_name.removeprefix(prefix)
    raise AssertionError(machine_name)


def list_variants(row: Row) -> list[tuple[str, ...]]:
    """Lists the sets of causes of a row: none, each that changes something, all but one, and all.

    The one is "sums", about which the papers say the least.
    """
    base = make_described_machine(row.machine)
    period = make_described_machine(find_period(row.machine))
    plain = mix_machines(base, period, ())
    # Fused batch normalization came with TensorFlow 1.0, after the first paper.
    has_normalization = row.model == "inception_v3" and row.machine.endswith("xK80")
    applies = {
        "sums": True,
        "operations": True,
        "normalization": has_normalization and not row.machine.startswith("post-"),
    }
    found = tuple(
        cause.name
        for cause in CAUSES
        if applies.get(cause.name, mix_machines(base, period, [cause.name]) != plain)
    )
    without_sums = tuple(name for name in found if name != "sums")
    return [(), *((name,) for name in found), without_sums, found]


def list_columns(table: PaperTable) -> list[Column]:
    """Lists the columns of a table that the paper prints and that nothing is learned for."""
    return [column for column in table.columns if column.is_baseline and column.method]


@dataclasses.dataclass(frozen=True, eq=False)
class _Graph:
    """A model: the groups that experts place, and operations with their gradients.

    Attributes:
        groups: the groups of the first paper.
        operations: operations with their gradients; sums of gradients are apart.
        sums: int, the groups of `operations` that are sums of gradients.
    """

    groups: GroupedGraph
    operations: GroupedGraph
    sums: np.ndarray


def _build_graph(model: str, *, fused: bool, small: bool) -> _Graph:
    from benchmarks.models import inception_v3
    from benchmarks.models.catalog import MODELS, build_model
    from benchmarks.problems.by_name import colocate_by_name, is_gradient_sum
    from tf_placer.inputs.workload import read_workload

    if fused:
        built = build_model(model, small=small)
    else:
        entry = MODELS[model]
        built = inception_v3.build(
            **{**entry.settings, **(entry.small if small else {})}, fused=False
        )
    workload = read_workload(built.graph, [built.train_op, built.loss])
    by_name = read_workload(
        colocate_by_name(built.graph.as_graph_def()), [built.train_op, built.loss]
    )
    operations = group_operations(by_name.op_graph, "fine")
    names = operations.op_graph.names
    group = operations.grouping.expand_to_operations(operations.colocation)
    sums = np.array([is_gradient_sum(name) for name in names]) & (group >= 0)
    return _Graph(group_operations(workload.op_graph), operations, np.unique(group[sums]))


def simulate_model(model: str, *, small: bool = False) -> list[CauseStep]:
    """Simulates all rows of a model with each of their sets of causes.

    Args:
        model: of the catalog.
        small: the small size.
    """
    graphs: dict[bool, _Graph] = {}
    steps = []
    for name in _TABLES:
        for number, row in enumerate(TABLES[name].rows):
            if row.model != model:
                continue
            for names in list_variants(row):
                fused = "normalization" not in names
                if fused not in graphs:
                    graphs[fused] = _build_graph(model, fused=fused, small=small)
                machine = mix_machines(
                    make_described_machine(row.machine),
                    make_described_machine(find_period(row.machine)),
                    names,
                )
                step_of = _simulate_methods(
                    graphs[fused], machine, names, row, list_columns(TABLES[name])
                )
                steps += [
                    CauseStep(name, number, method, names, *step)
                    for method, step in step_of.items()
                ]
                print(f"{name} {row.title} {row.machine}: {'+'.join(names) or 'none'}", flush=True)
    return steps


def _simulate_methods(
    graph: _Graph,
    machine: Machine,
    names: Sequence[str],
    row: Row,
    columns: Sequence[Column],
) -> dict[str, tuple[float, bool]]:
    """Finds the seconds of a step of each method, and whether it fits into memory, by title."""
    from benchmarks.harness.run_placers import make_run_placer
    from tf_placer.costs.analytic import compute_analytic_costs
    from tf_placer.costs.costed_graph import CostedGraph
    from tf_placer.simulation.simulator import Simulator

    costs = compute_analytic_costs(graph.groups.op_graph, machine)
    device_names = tuple(device.name for device in machine.devices)

    def make_problem(grouped: GroupedGraph) -> PaperProblem:
        legal = grouped.grouping.legal_devices(grouped.colocation, device_names)
        problem = CostedGraph(grouped, machine, costs).problem()
        return PaperProblem(grouped.group_graph, legal, problem, "", 0)

    groups, free = make_problem(graph.groups), make_problem(graph.operations)
    bound = free
    if "sums" in names:
        legal = free.legal.copy()
        legal[graph.sums] = np.arange(len(device_names)) == _FIRST_GPU
        bound = dataclasses.replace(free, legal=legal)
    simulator = Simulator(free.problem, threads=1)
    steps = {}
    for column in columns:
        known = column.placer_for(row)
        if known is None:
            continue
        placer, options = known
        by_name = free if placer in _SINGLE_DEVICE else bound
        cuts_operations = placer in _PARTITIONERS and "operations" in names
        given = by_name if cuts_operations else groups
        made = make_run_placer(placer, dict(options), row.model, given, seed=0)
        # The papers have one placement of each, so the first counts.
        placement = made.propose(1)[0]
        if not cuts_operations:
            placement = _carry_over(placement, graph, by_name.legal)
        batch = simulator.simulate(placement[None].astype(np.int32))
        steps[column.title] = float(batch.step_secs[0]), bool(batch.feasible[0])
    return steps


def _carry_over(placement: np.ndarray, graph: _Graph, legal: np.ndarray) -> np.ndarray:
    """Gives operations with their gradients the devices of the groups that most of them are in."""
    coarse = graph.groups.grouping.expand_to_operations(graph.groups.colocation)
    fine = graph.operations.grouping.expand_to_operations(graph.operations.colocation)
    placed = (coarse >= 0) & (fine >= 0)
    votes = np.zeros(legal.shape, np.int64)
    np.add.at(votes, (fine[placed], placement[coarse[placed]]), 1)
    return np.where(legal, votes, -1).argmax(axis=1)


def _write_steps(model: str, path: str) -> None:
    """Simulates one model, in a process of its own, and writes the steps."""
    write_json(path, [dataclasses.asdict(step) for step in simulate_model(model)])


def _simulate_all(models: Sequence[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Simulates models one after the other; says which could not be simulated."""
    with tempfile.TemporaryDirectory() as directory:
        paths = [os.path.join(directory, f"{model}.json") for model in models]
        calls = [
            Call(_write_steps, (model, path), _LIMIT_SECS)
            for model, path in zip(models, paths, strict=True)
        ]
        for ended in run_calls(calls, 1):
            model = models[ended.index]
            print(f"{model}: {ended.problem or 'simulated'}", file=sys.stderr, flush=True)
            if ended.problem is None:
                yield model, read_json(paths[ended.index])


def _read_steps(kept: Mapping[str, Any]) -> list[CauseStep]:
    return [
        CauseStep(**{**step, "causes": tuple(step["causes"])})
        for steps in kept["models"].values()
        for step in steps
    ]


def main() -> None:
    """Simulates the models that are missing, prints the page and writes it."""
    parser = run_parser(__doc__, "causes")
    parser.add_argument("--models", help="only these, with commas between them")
    args = parser.parse_args()
    path = pathlib.Path(args.out_dir, "causes.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = read_json(path) if path.exists() else {"models": {}}
    models = list(dict.fromkeys(row.model for name in _TABLES for row in TABLES[name].rows))
    wanted = args.models.split(",") if args.models else models
    missing = [model for model in wanted if model not in kept["models"]]
    for model, steps in _simulate_all([] if args.only_kept else missing):
        kept = {**provenance(), "models": kept["models"] | {model: steps}}
        write_json(path, kept)
    tables = [TABLES[name] for name in _TABLES]
    page = causes_page(tables, list_columns, [(c.name, c.title) for c in CAUSES], _read_steps(kept))
    write_table(f"{page}\n\nSimulated at commit {kept.get('commit')}.", path.parent / "causes.md")


if __name__ == "__main__":
    main()
