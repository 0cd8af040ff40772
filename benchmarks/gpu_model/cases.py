"""The distinct operations of models, as a file that needs neither TensorFlow nor tf_placer to read.

The script that measures them runs on a machine that has a GPU and PyTorch, and nothing else.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["CASES_PATH", "Case", "Cases", "Tensor", "kind_of", "order_by_value", "read_cases"]

CASES_PATH = pathlib.Path(__file__).parent / "data" / "cases.json.gz"

_KINDS: Mapping[str, tuple[str, ...]] = {
    "matrix product": ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"),
    "convolution": ("Conv2D",),
    "convolution, input gradient": ("Conv2DBackpropInput",),
    "convolution, filter gradient": ("Conv2DBackpropFilter",),
    "depthwise convolution": (
        "DepthwiseConv2dNative",
        "DepthwiseConv2dNativeBackpropInput",
        "DepthwiseConv2dNativeBackpropFilter",
    ),
    "batch normalization": ("FusedBatchNormV3", "FusedBatchNormGradV3"),
    "pooling": ("MaxPool", "MaxPoolGrad", "AvgPool", "AvgPoolGrad"),
    "softmax": (
        "Softmax",
        "LogSoftmax",
        "SoftmaxCrossEntropyWithLogits",
        "SparseSoftmaxCrossEntropyWithLogits",
    ),
    "reduction": ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "L2Loss", "BiasAddGrad"),
    "rows of tables": (
        "GatherV2",
        "ResourceGather",
        "UnsortedSegmentSum",
        "ScatterAdd",
        "ResourceScatterAdd",
        "ResourceSparseApplyAdagrad",
    ),
    "rearrangement": (
        *("ConcatV2", "Split", "SplitV", "Pack", "Unpack", "Slice", "StridedSlice"),
        *("StridedSliceGrad", "Pad", "Transpose", "Tile"),
    ),
    "optimizer": (
        *("ApplyAdam", "ApplyMomentum", "ApplyRMSProp", "ApplyAdagrad", "ApplyGradientDescent"),
        *("ResourceApplyAdam", "ResourceApplyMomentum", "ResourceApplyRMSProp"),
        *("ResourceApplyAdagrad", "ResourceApplyAdagradV2", "ResourceApplyGradientDescent"),
    ),
    "assignment": (
        *("Assign", "AssignAdd", "AssignSub"),
        *("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"),
    ),
}


def kind_of(op_type: str) -> str:
    """Names the kind of a type of operation; "element-wise" for all that is no other kind."""
    return next((kind for kind, types in _KINDS.items() if op_type in types), "element-wise")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input or output of an operation.

    Attributes:
        dtype: the name of its type, as TensorFlow and NumPy have it.
        shape: its sizes, an unknown one as 1. The handle of a variable has those of the variable.
        values: the whole numbers that it holds, as nested lists, if they are known: axes, sizes.
    """

    dtype: str
    shape: tuple[int, ...]
    values: Any = None

    def __str__(self) -> str:
        known = "" if self.values is None else f"={self.values}"
        return f"{self.dtype}{list(self.shape)}{known}".replace(" ", "")


@dataclasses.dataclass(frozen=True)
class Case:
    """An operation with its shapes, and how often steps of models run it.

    Attributes:
        op_type: its type in TensorFlow.
        inputs: its inputs.
        outputs: its outputs.
        attributes: those that say what it computes.
        flops: the floating point operations that the analytic model counts.
        touched_bytes: the bytes that the analytic model counts.
        runs: how often a step of each model has it, by the name of the model.
    """

    op_type: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: Mapping[str, Any]
    flops: float
    touched_bytes: float
    runs: Mapping[str, float]

    @property
    def key(self) -> str:
        """An identifier: its type, inputs, outputs and attributes."""
        given = " ".join(map(str, self.inputs))
        made = " ".join(map(str, self.outputs))
        attributes = " ".join(f"{name}={value}" for name, value in sorted(self.attributes.items()))
        return f"{self.op_type}({given}) -> {made} {attributes}".strip()

    @property
    def kind(self) -> str:
        """The kind of its type."""
        return kind_of(self.op_type)

    def also_run(self, other: Case) -> Case:
        """Adds the runs of the same operation elsewhere."""
        names = {**self.runs, **other.runs}
        runs = {name: self.runs.get(name, 0.0) + other.runs.get(name, 0.0) for name in names}
        return dataclasses.replace(self, runs=runs)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Case:
        """Reads what `Cases.write` wrote of it."""
        inputs, outputs = (
            tuple(Tensor(dtype, tuple(shape), *rest) for dtype, shape, *rest in value[side])
            for side in ("inputs", "outputs")
        )
        attributes, flops, touched_bytes = value["attributes"], value["flops"], value["bytes"]
        return cls(value["type"], inputs, outputs, attributes, flops, touched_bytes, value["runs"])

    def to_json(self) -> dict[str, Any]:
        """Converts to what JSON can hold."""

        def lists(tensors: tuple[Tensor, ...]) -> list[list[Any]]:
            return [
                [each.dtype, each.shape, *([] if each.values is None else [each.values])]
                for each in tensors
            ]

        return {
            "type": self.op_type,
            "inputs": lists(self.inputs),
            "outputs": lists(self.outputs),
            "attributes": dict(self.attributes),
            "flops": self.flops,
            "bytes": self.touched_bytes,
            "runs": dict(self.runs),
        }


@dataclasses.dataclass(frozen=True)
class Cases:
    """The operations that take most of the modeled time of steps.

    Attributes:
        machine_class: the class of devices whose modeled times chose the cases.
        model_secs: the modeled seconds of all operations of a step on it, by model.
        covered: the share of these seconds that the cases have, by model.
        cases: the operations, the most valuable first.
        made_by: the command, versions and commit.
    """

    machine_class: str
    model_secs: Mapping[str, float]
    covered: Mapping[str, float]
    cases: tuple[Case, ...]
    made_by: Mapping[str, Any]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes a compressed file of JSON."""
        value = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        value["cases"] = [case.to_json() for case in self.cases]
        # Without a time, the same cases make the same file.
        content = gzip.compress(json.dumps(value, separators=(",", ":")).encode(), mtime=0)
        pathlib.Path(path).write_bytes(content)


def read_cases(path: str | os.PathLike[str] = CASES_PATH) -> Cases:
    """Reads what `Cases.write` wrote."""
    value = json.loads(gzip.decompress(pathlib.Path(path).read_bytes()))
    return Cases(**value | {"cases": tuple(map(Case.from_json, value["cases"]))})


def order_by_value(cases: Iterable[Case], values: Mapping[str, float]) -> list[Case]:
    """Orders cases so that a measurement that is cut short has seen something of everything.

    Args:
        cases: the cases.
        values: the value of each by its key.

    Returns:
        The most valuable case of each type, then the second of each, and so on.
    """
    by_type: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: (-values[case.key], case.key)):
        by_type.setdefault(case.op_type, []).append(case)
    ranked = [(rank, case) for each in by_type.values() for rank, case in enumerate(each)]
    ranked.sort(key=lambda pair: (pair[0], -values[pair[1].key]))
    return [case for _, case in ranked]
