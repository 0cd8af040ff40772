"""What the operations of a problem are, by type and name: kind, direction, layer and step."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from graph_passes.util.messages import plain_text
from tf_placer.problem.coarse_groups import clusters_of
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["OperationKinds", "operation_kinds", "step_number"]

# The first pattern that is in a type decides.
_OF_TYPES = (
    ("update", r"^(Resource)?(Sparse)?Apply|^Assign|^(Resource)?Scatter"),
    ("convolution", r"Conv\dD|DepthwiseConv|^Conv$"),
    ("matrix product", r"MatMul|Einsum"),
    ("pooling", r"Pool"),
    ("softmax", r"Softmax|CrossEntropy"),
    ("concat and split", r"^Concat|^Split|^Pack$|^Unpack$|Slice"),
    ("normalization", r"BatchNorm|^LRN"),
    ("lookup", r"Gather|UnsortedSegment"),
)
# Where types are unknown, the first pattern that is in the last part of a name decides.
_OF_NAMES = (
    ("update", r"Apply|^update|^Assign|Adam|RMSProp|Momentum"),
    ("convolution", r"Conv\d?D|Conv$|Conv2DBackprop"),
    ("matrix product", r"MatMul|Einsum"),
    ("pooling", r"Pool"),
    ("softmax", r"Softmax|CrossEntropy"),
    ("concat and split", r"[Cc]oncat|[Ss]plit|^Pack|^[Ss]tack|Slice$"),
    ("normalization", r"Norm"),
    ("lookup", r"Gather|[Ll]ookup|UnsortedSegment"),
)
# Gradients and updates that are not in a scope of their own. Conv2DBackpropInput is not among them:
# in the forward pass it is a transposed convolution.
_BACKWARD_TYPE = re.compile(r"Grad(V\d)?$|BackpropFilter|^(Resource)?(Sparse)?Apply")
_BACKWARD = re.compile(r"(^|/)(gradients(_\d+)?|gradient_tape)(/|$)|_grad(_\d+)?(/|$)")
_UPDATE = re.compile(r"(^|/)(train|update_[^/]*|Adam|RMSProp|GradientDescent|Momentum)(_\d+)?(/|$)")
_PREFIX = re.compile(r"^(gradients(_\d+)?|gradient_tape|train)/")
_STEP = re.compile(r"(?:^|/)(?:step|time|timestep|t)_?(\d+)(?=/|$)")
# A layer is named after the scope of this share of its operations.
_MOST = 0.7
_OTHER = "other"
_UPDATE_KIND = "update"


@dataclasses.dataclass(frozen=True, eq=False)
class OperationKinds:
    """What each operation of a problem is.

    Attributes:
        kinds: of each operation, a key of `colors.KIND_COLORS`.
        backward: bool [num_operations], whether it is of the backward pass or an update.
        clusters: int [num_operations], the coarse group, or the group where there is none.
        layers: int [num_operations], its layer, counted from the inputs.
        layer_names: what each layer is called.
    """

    kinds: tuple[str, ...]
    backward: np.ndarray
    clusters: np.ndarray
    layers: np.ndarray
    layer_names: tuple[str, ...]


def operation_kinds(problem: PlacementProblem) -> OperationKinds:
    """Finds out what the operations of a problem are.

    The kind comes from the type. A problem that has no types has names: TensorFlow names operations
    after their types where nobody else does, and gradients after what they are of. Where neither
    says anything, an operation is of kind "other" and of the forward pass.
    """
    names, types = problem.operation_names, problem.operation_types
    clusters = problem.groups
    if problem.coarse_groups is not None:
        clusters = clusters_of(problem.groups, problem.coarse_groups)[problem.groups]
    layers = problem.layers
    if layers is None:
        layers = np.zeros(problem.num_operations, np.int32)
    backward = np.array(
        [bool(_BACKWARD.search(name) or _UPDATE.search(name)) for name in names], bool
    )
    if types is not None:
        backward |= [bool(_BACKWARD_TYPE.search(each)) for each in types]
    return OperationKinds(
        kinds=_kinds_of_names(names) if types is None else _kinds_of_types(types, names),
        backward=backward,
        clusters=clusters,
        layers=layers,
        layer_names=_layer_names(names, layers, backward),
    )


def step_number(name: str) -> int | None:
    """Reads the step of a recurrent model out of a name; None if the name has none."""
    match = _STEP.search(name)
    return int(match[1]) if match else None


def _kinds_of_types(types: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    known = {each: _first(_OF_TYPES, each) for each in set(types)}
    # What computes the size of an update has the type of any arithmetic.
    return tuple(
        _UPDATE_KIND if known[of_type] == _OTHER and _is_update(name) else known[of_type]
        for of_type, name in zip(types, names, strict=True)
    )


def _kinds_of_names(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        _UPDATE_KIND if _is_update(name) else _first(_OF_NAMES, name.rpartition("/")[2])
        for name in names
    )


def _first(patterns: Sequence[tuple[str, str]], text: str) -> str:
    return next((kind for kind, pattern in patterns if re.search(pattern, text)), _OTHER)


def _is_update(name: str) -> bool:
    return bool(_UPDATE.search(name)) and not _BACKWARD.search(name)


def _layer_names(
    names: tuple[str, ...], layers: np.ndarray, backward: np.ndarray
) -> tuple[str, ...]:
    """Names each layer after the scope that most of its operations have in common."""
    scopes: dict[int, list[str]] = collections.defaultdict(list)
    # Names of the forward pass are those that people gave.
    for wanted in (False, True):
        found = set(scopes)
        for name, layer, is_backward in zip(names, layers.tolist(), backward.tolist(), strict=True):
            if is_backward == wanted and layer not in found:
                own = _PREFIX.sub("", name)
                scope = _STEP.split(own)[0]
                scopes[layer].append(own.rpartition("/")[0] if scope == own else scope)
    most = {layer: _common_scope(of_layer) for layer, of_layer in scopes.items()}
    of_name = collections.Counter(most.values())
    named = []
    for layer in range(int(layers.max(initial=-1)) + 1):
        scope = most.get(layer, "")
        is_clear = scope and of_name[scope] == 1
        named.append(plain_text(scope if is_clear else f"{scope} (layer {layer})".strip()))
    return tuple(named)


def _common_scope(scopes: list[str]) -> str:
    """Finds the longest scope that most of these lie in; the most common one if there is none."""
    counts = collections.Counter(each for each in scopes if each)
    if not counts:
        return ""
    common = scope = counts.most_common(1)[0][0]
    while scope:
        inside = sum(each == scope or each.startswith(f"{scope}/") for each in scopes)
        if inside >= _MOST * len(scopes):
            return scope
        scope = scope.rpartition("/")[0]
    return common
