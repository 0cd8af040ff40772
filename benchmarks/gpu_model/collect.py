"""Collects the operations that take most of the modeled time of the models' steps.

Builds models of the catalogue at full size, counts the work of each operation as the analytic model
of costs does, and keeps the distinct operations that make up most of a step's modeled time on a
class of devices. `benchmarks.gpu_model.measure` measures them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from benchmarks.gpu_model.cases import CASES_PATH, Case, Cases, Tensor, order_by_value
from benchmarks.gpu_model.comparison import modeled_secs
from benchmarks.harness.provenance import provenance
from benchmarks.models.catalogue import build_model
from graph_passes.kernel_work import kernel_work
from graph_passes.op_graph import OpGraph
from graph_passes.small_values import SmallValues
from tf_placer.inputs.sources import read_source
from tf_placer.machines.device_classes import device_classes
from tf_placer.machines.machine import DeviceClass

__all__ = ["collect_cases", "main", "model_operations"]

_MODELS = (
    *("rnnlm_2", "nmt_2", "inception_v3", "resnet_50", "bert_base"),
    *("decoder_only", "nasnet_a", "two_towers"),
)
_MACHINE_CLASS = "H100"
_SHARE = 0.95
_MOST_VALUES = 16
# Operations whose work depends on the values of their small inputs: axes, and numbers of copies.
_SIZED_BY_VALUES = frozenset(
    [
        *("Sum", "Mean", "Max", "Min", "Prod", "All", "Any"),
        *("ConcatV2", "Split", "SplitV", "GatherV2", "Tile", "Transpose", "Pad"),
    ]
)
_ATTRIBUTES = (
    *("transpose_a", "transpose_b", "adj_x", "adj_y", "equation"),
    *("strides", "padding", "explicit_paddings", "dilations", "data_format", "ksize"),
    *("keep_dims", "axis", "is_training", "num_split", "use_nesterov"),
)
# Attributes that are left out where they have the default value of TensorFlow.
_DEFAULTS: Mapping[str, Any] = {
    "dilations": [1, 1, 1, 1],
    "explicit_paddings": [],
    **dict.fromkeys(("transpose_a", "transpose_b", "adj_x", "adj_y", "keep_dims"), False),
    **dict.fromkeys(("use_nesterov",), False),
}


def model_operations(name: str, *, small: bool = False) -> list[Case]:
    """Lists the distinct operations of a model that start kernels on a GPU.

    Args:
        name: of the catalogue of models.
        small: the small size.

    Returns:
        The operations, without those in bodies of functions.

    Raises:
        ValueError: there is no such model.
    """
    model = build_model(name, small=small)
    graph = read_source(model.graph, [model.train_op, model.loss]).op_graph
    work = kernel_work(graph)
    values = SmallValues(graph)
    found: dict[str, Case] = {}
    for kernel in np.flatnonzero(~work.on_host & ~work.called).tolist():
        operation = int(work.operations[kernel])
        op_type = graph.type_of(operation)
        known_values = values if op_type in _SIZED_BY_VALUES else None
        inputs = tuple(
            _tensor(graph, known_values, each) for each in graph.input_tensors[operation]
        )
        made = range(int(graph.output_start[operation]), int(graph.output_start[operation + 1]))
        case = Case(
            op_type=op_type,
            inputs=inputs,
            outputs=tuple(_tensor(graph, None, each) for each in made),
            attributes=_attributes(graph.graph_def.node[operation]),
            flops=float(work.flops[kernel]),
            touched_bytes=float(work.touched_bytes[kernel]),
            runs={name: float(work.repeats[kernel])},
        )
        same = found.get(case.key)
        found[case.key] = case if same is None else same.also_run(case)
    return list(found.values())


def collect_cases(
    operations: Mapping[str, Sequence[Case]], known: DeviceClass, share: float
) -> Cases:
    """Chooses the operations that make up most of each model's step.

    Args:
        operations: the distinct operations of each model.
        known: the class of devices that the step is modeled on.
        share: the share of the modeled time of each step that is enough.
    """
    chosen: dict[str, None] = {}
    values: dict[str, float] = {}
    of_all: dict[str, Case] = {}
    model_secs, covered = {}, {}
    for name, cases in operations.items():
        secs = {
            case.key: case.runs[name] * modeled_secs(case.flops, case.touched_bytes, known)
            for case in cases
        }
        model_secs[name] = total = sum(secs.values())
        reached = 0.0
        for case in sorted(cases, key=lambda case: -secs[case.key]):
            key = case.key
            of_all[key] = of_all[key].also_run(case) if key in of_all else case
            values[key] = values.get(key, 0.0) + secs[key] / total
            if reached < share * total:
                reached += secs[key]
                chosen[key] = None
        covered[name] = reached / total
    kept = [of_all[key] for key in chosen]
    return Cases(
        machine_class=known.name,
        model_secs=model_secs,
        covered=covered,
        cases=tuple(order_by_value(kept, values)),
        made_by=provenance(),
    )


def _tensor(graph: OpGraph, values: SmallValues | None, tensor: int) -> Tensor:
    dtype = tf.dtypes.as_dtype(int(graph.tensor_dtypes[tensor]))
    shape = graph.tensor_shapes[tensor]
    if dtype == tf.resource:
        variable = _variable(graph, tensor)
        if variable is not None:
            dtype, shape = variable
    sizes = tuple(max(size, 1) for size in shape or ())
    is_small = dtype in (tf.int32, tf.int64) and int(np.prod(sizes)) <= _MOST_VALUES
    value = values.value(tensor) if values is not None and is_small else None
    return Tensor(dtype.name, sizes, None if value is None else value.tolist())


def _variable(graph: OpGraph, tensor: int) -> tuple[tf.DType, tuple[int, ...]] | None:
    """Finds the type and shape of the variable that a handle stands for."""
    node = graph.graph_def.node[int(graph.tensor_producer[tensor])]
    if node.op != "VarHandleOp":
        return None
    sizes = tuple(dim.size for dim in node.attr["shape"].shape.dim)
    return tf.dtypes.as_dtype(node.attr["dtype"].type), sizes


def _attributes(node: tf.compat.v1.NodeDef) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _ATTRIBUTES:
        if name not in node.attr:
            continue
        value = node.attr[name]
        match value.WhichOneof("value"):
            case "b":
                found[name] = bool(value.b)
            case "i":
                found[name] = int(value.i)
            case "s":
                found[name] = value.s.decode()
            case "list":
                found[name] = [int(each) for each in value.list.i]
        if name in _DEFAULTS and found.get(name) == _DEFAULTS[name]:
            del found[name]
    return found


def main() -> None:
    """Builds the models, and writes the file of cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(CASES_PATH))
    args = parser.parse_args()
    operations = {}
    for name in _MODELS:
        operations[name] = model_operations(name)
        print(f"{name}: {len(operations[name])} distinct operations", flush=True)
    found = collect_cases(operations, device_classes()[_MACHINE_CLASS], _SHARE)
    found.write(args.out)
    print(f"{len(found.cases)} cases are in {args.out}")


if __name__ == "__main__":
    main()
