"""The distinct operations of models, as a file that needs neither TensorFlow nor tf_placer to read.

The script that measures them runs on a machine that has a GPU and PyTorch, and nothing else.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["CASES_PATH", "Case", "Cases", "Tensor", "kind_of", "order_by_value", "read_cases"]

CASES_PATH = pathlib.Path(__file__).parent / "data" / "cases.json"

_FORMAT = 1
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
_ELEMENT_WISE = "element-wise"


def kind_of(op_type: str) -> str:
    """Names the kind of a type of operation; "element-wise" for all that is no other kind."""
    return next((kind for kind, types in _KINDS.items() if op_type in types), _ELEMENT_WISE)


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

    def to_json(self) -> list[Any]:
        """Converts to what JSON can hold."""
        known = [] if self.values is None else [self.values]
        return [self.dtype, list(self.shape), *known]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Tensor:
        """Reads what `to_json` made."""
        dtype, shape, *known = value
        return cls(str(dtype), tuple(int(size) for size in shape), known[0] if known else None)

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

    def to_json(self) -> dict[str, Any]:
        """Converts to what JSON can hold."""
        return {
            "type": self.op_type,
            "inputs": [each.to_json() for each in self.inputs],
            "outputs": [each.to_json() for each in self.outputs],
            "attributes": dict(self.attributes),
            "flops": self.flops,
            "bytes": self.touched_bytes,
            "runs": dict(self.runs),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Case:
        """Reads what `to_json` made."""
        return cls(
            str(value["type"]),
            tuple(Tensor.from_json(each) for each in value["inputs"]),
            tuple(Tensor.from_json(each) for each in value["outputs"]),
            dict(value["attributes"]),
            float(value["flops"]),
            float(value["bytes"]),
            {str(name): float(runs) for name, runs in value["runs"].items()},
        )


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
        """Writes a file with one case on each line, so that a change of one changes one line.

        Raises:
            OSError: it cannot be written.
        """
        head = {
            "format": _FORMAT,
            "machine_class": self.machine_class,
            "model_secs": dict(self.model_secs),
            "covered": dict(self.covered),
            "made_by": dict(self.made_by),
        }
        lines = [json.dumps(case.to_json(), separators=(",", ":")) for case in self.cases]
        body = ",\n".join(lines)
        text = f'{json.dumps(head, indent=1)[:-2]},\n "cases": [\n{body}\n]\n}}\n'
        pathlib.Path(path).write_text(text)


def read_cases(path: str | os.PathLike[str] = CASES_PATH) -> Cases:
    """Reads a file of cases.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no such file; the message names it.
    """
    text = pathlib.Path(path).read_text()
    try:
        value = json.loads(text)
        if value["format"] != _FORMAT:
            raise ValueError(f"format {value['format']}, not {_FORMAT}")
        return Cases(
            str(value["machine_class"]),
            {str(name): float(secs) for name, secs in value["model_secs"].items()},
            {str(name): float(share) for name, share in value["covered"].items()},
            tuple(Case.from_json(each) for each in value["cases"]),
            dict(value["made_by"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{os.fspath(path)}: no file of cases ({type(error).__name__}: {error}); make it by "
            "python -m benchmarks.gpu_model.collect"
        ) from None


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
