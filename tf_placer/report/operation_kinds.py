"""Kind, direction, layer and step of operations, found from their types and names."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from graph_passes.op_types import VARIABLES
from graph_passes.util.messages import plain_text
from tf_placer.problem.coarse_groups import find_clusters
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = [
    "OperationKinds",
    "describe_scopes",
    "find_kinds",
    "find_step_number",
    "model_scopes",
    "operation_kinds",
    "strip_calls",
]

_OTHER, _UPDATE_KIND, _ARITHMETIC_KIND = "other", "update", "arithmetic"
# Kinds of operations that are of kind "update" in the scope of one.
_KINDS_IN_UPDATES = (_OTHER, _ARITHMETIC_KIND)
# Operations on each element, and sums.
_ARITHMETIC = (
    r"^(Add|AddV2|AddN|Sub|Mul|RealDiv|DivNoNan|Neg|Abs|Sign|Square|SquaredDifference|Sqrt|Rsqrt|Exp"
    r"|Log|Log1p|Pow|Maximum|Minimum|Reciprocal|Tanh|Sigmoid|Relu6?|LeakyRelu|Elu|Selu|Softplus|Erf"
    r"|Select|SelectV2|Floor|Cast|BiasAdd|Sum|Mean|Prod|Max|Min|L2Loss)(Grad|GradV1)?(_\d+)?$"
)
# The first pattern that matches a type decides.
_TYPE_PATTERNS = (
    ("update", r"^(Resource)?(Sparse)?Apply|^Assign|^(Resource)?Scatter"),
    ("convolution", r"Conv\dD|DepthwiseConv|^Conv$"),
    ("matrix product", r"MatMul|Einsum"),
    ("pooling", r"Pool"),
    ("softmax", r"Softmax|CrossEntropy"),
    ("concat and split", r"^Concat|^Split|^Pack$|^Unpack$|Slice"),
    ("normalization", r"BatchNorm|^LRN"),
    ("lookup", r"Gather|UnsortedSegment"),
    ("loop, branch or call", r"While$|If$|Case$|PartitionedCall$"),
    (_ARITHMETIC_KIND, _ARITHMETIC),
)
# Without types, the first pattern that matches the last part of a name decides.
_NAME_PATTERNS = (
    ("update", r"Apply|^update|^Assign|Adam|RMSProp|Momentum"),
    ("convolution", r"Conv\d?D|Conv$|Conv2DBackprop"),
    ("matrix product", r"MatMul|Einsum"),
    ("pooling", r"Pool"),
    ("softmax", r"Softmax|CrossEntropy"),
    ("concat and split", r"[Cc]oncat|[Ss]plit|^Pack|^[Ss]tack|Slice$"),
    ("normalization", r"Norm"),
    ("lookup", r"Gather|[Ll]ookup|UnsortedSegment"),
    ("loop, branch or call", r"^[Ww]hile(_\d+)?$|PartitionedCall(_\d+)?$"),
    (_ARITHMETIC_KIND, _ARITHMETIC),
)
# Gradients and updates outside of a scope for them. Conv2DBackpropInput is not among them, because
# in the forward pass it is a transposed convolution.
_BACKWARD_TYPE = re.compile(r"Grad(V\d)?$|BackpropFilter|^(Resource)?(Sparse)?Apply")
_BACKWARD = re.compile(r"(^|/)(gradients(_\d+)?|gradient_tape)(/|$)|_grad(_\d+)?(/|$)")
# Scopes of updates in TensorFlow 1, and of the optimizers of Keras, which they are named after.
_UPDATE = re.compile(
    r"(^|/)(train|update_[^/]*|(?i:adam(ax|w)?|adadelta|adafactor|adagrad|ftrl|gradientdescent"
    r"|lamb|lion|loss_scale_optimizer|momentum|muon|nadam|rm_?sprop|sgd))(_\d+)?(/|$)"
)
# Lists that a loop of the forward pass fills for its gradient.
_ACCUMULATOR = re.compile(r"/accumulator(_\d+)?(/|$)")
_PREFIX = re.compile(r"^(gradients(_\d+)?|gradient_tape|train)/")
_CALL_NUMBER = re.compile(r"_\d+(?=/)")
# The scopes of calls that were inlined, as `inline_calls` names them.
_CALLS = re.compile(r"(?:(?<=/)|^)(Stateful)?PartitionedCall(_\d+)?(_call)*/")
_STEP = re.compile(r"(?:^|/)(?:step|time|timestep|t)_?(\d+)(?=/|$)")
# A model has a scope of this share of its operations.
_LEAST_MODEL_SHARE = 0.7
# A layer is named after a scope of this share of its time.
_LEAST_SCOPE_SHARE = 0.5
# Without such a scope, it is named after the first and the last of the scopes of this share.
_LEAST_PART_SHARE = 0.05
# The scope of the loss of a compiled model of Keras 3.
_KERAS_3_LOSS = "compile_loss/"


@dataclasses.dataclass(frozen=True, eq=False)
class OperationKinds:
    """Kind, direction, group and layer of each operation of a problem.

    Attributes:
        kinds: the kind of each operation, a key of `colors.KIND_COLORS`.
        backward: bool [num_operations], true in the backward pass and for updates.
        clusters: int [num_operations], the coarse group, or the group if there are no coarse ones.
        layers: int [num_operations], the layer, counted from the inputs.
        layer_names: the name of each layer.
        is_keras: whether the layers are those of a Keras model.
    """

    kinds: tuple[str, ...]
    backward: np.ndarray
    clusters: np.ndarray
    layers: np.ndarray
    layer_names: tuple[str, ...]
    is_keras: bool = False

    @property
    def has_backward(self) -> bool:
        """True if there is a backward pass or an update, as in training."""
        return bool(self.backward.any())


def operation_kinds(problem: PlacementProblem) -> OperationKinds:
    """Finds kind, direction, group and layer of the operations of a problem.

    The kind follows from the type. In a problem without types it follows from the name, because by
    default TensorFlow names operations after their types, and gradients after the operations that
    they belong to. If neither matches, an operation is of kind "other" and of the forward pass.
    """
    names, types = problem.operation_names, problem.operation_types
    clusters = problem.groups
    if problem.coarse_groups is not None:
        clusters = find_clusters(problem.groups, problem.coarse_groups)[problem.groups]
    layers = problem.layers
    if layers is None:
        layers = np.zeros(problem.num_operations, np.int32)
    backward = np.array(
        [
            bool(_BACKWARD.search(name) or _UPDATE.search(name)) and not _ACCUMULATOR.search(name)
            for name in names
        ],
        bool,
    )
    if types is not None:
        backward |= [bool(_BACKWARD_TYPE.search(each)) for each in types]
    _spread_backward(problem, backward)
    is_keras = _is_keras_3(names)
    if is_keras:
        layers, layer_names = _keras_layers(problem, backward)
    else:
        layer_names = _layer_names(problem, layers, backward)
    return OperationKinds(
        kinds=find_kinds(problem),
        backward=backward,
        clusters=clusters,
        layers=layers,
        layer_names=layer_names,
        is_keras=is_keras,
    )


def _spread_backward(problem: PlacementProblem, backward: np.ndarray) -> None:
    """Marks what reads from the backward pass, such as arithmetic of an update, as part of it."""
    after: list[list[int]] = [[] for _ in range(problem.num_operations)]
    for a, b in problem.edges.tolist():
        after[a].append(b)
    for i in problem.order.tolist():
        # The shape of an accumulator may come from the gradient; its loop is still forward.
        if backward[i] and not _ACCUMULATOR.search(problem.operation_names[i]):
            backward[after[i]] = True


def find_kinds(problem: PlacementProblem) -> tuple[str, ...]:
    """Finds the kind of each operation of a problem; see `operation_kinds`."""
    names, types = problem.operation_names, problem.operation_types
    return _kinds_of_names(names) if types is None else _kinds_of_types(types, names)


def strip_calls(name: str) -> str:
    """Strips the scopes of calls from the name of an operation.

    Example:
        >>> strip_calls("StatefulPartitionedCall_1/PartitionedCall/dense/MatMul")
        'dense/MatMul'
    """
    return _CALLS.sub("", name)


def find_step_number(name: str) -> int | None:
    """Reads the step of a recurrent model from a name; None if the name has none."""
    match = _STEP.search(name)
    return int(match[1]) if match else None


def _kinds_of_types(types: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    known = {each: _match_kind(_TYPE_PATTERNS, each) for each in set(types)}
    # Arithmetic that computes the size of an update has no type that tells it apart.
    return tuple(
        _UPDATE_KIND if known[of_type] in _KINDS_IN_UPDATES and _is_update(name) else known[of_type]
        for of_type, name in zip(types, names, strict=True)
    )


def _kinds_of_names(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        _UPDATE_KIND if _is_update(name) else _match_kind(_NAME_PATTERNS, name.rpartition("/")[2])
        for name in names
    )


def _match_kind(patterns: Sequence[tuple[str, str]], text: str) -> str:
    return next((kind for kind, pattern in patterns if re.search(pattern, text)), _OTHER)


def _is_update(name: str) -> bool:
    return bool(_UPDATE.search(name)) and not _BACKWARD.search(name)


def model_scopes(problem: PlacementProblem, backward: np.ndarray) -> list[str]:
    """Finds the scope of each operation that people have named: its place in the model.

    Args:
        problem: the problem.
        backward: bool [num_operations], true in the backward pass and for updates.

    Returns:
        The scopes, without those of gradients, of calls and of the whole model, without the numbers
        of calls in a Keras model, and without operations that are the scopes of their own inputs. A
        variable without a scope is its own scope.
    """
    names, types = problem.operation_names, problem.operation_types
    paths = [_PREFIX.sub("", strip_calls(name)) for name in names]
    # The variables of a SavedModel are outside of the calls, and so of the scope of the model.
    is_called = [bool(_CALLS.search(name)) for name in names]
    is_inside = is_called if any(is_called) else [True] * len(names)
    if _is_keras_3(names):
        # Keras 3 opens a scope to build a layer and one to call it, so TensorFlow numbers the call.
        paths = [
            _CALL_NUMBER.sub("", path) if inside else path
            for path, inside in zip(paths, is_inside, strict=True)
        ]
    forward = [
        path.split("/")
        for path, back, inside in zip(paths, backward, is_inside, strict=True)
        if inside and not back and not path.startswith(_KERAS_3_LOSS)
    ]
    scoped = [parts for parts in forward if len(parts) > 1]
    has_loss = any(path.startswith(_KERAS_3_LOSS) for path in paths)
    # Metrics of Keras are outside of the model, and may be more than it.
    least_share = 0.0 if has_loss else _LEAST_MODEL_SHARE
    counts = collections.Counter(parts[0] for parts in scoped)
    for model, count in counts.most_common():
        inner = {parts[1] for parts in scoped if parts[0] == model and len(parts) > 2}
        if count >= least_share * len(scoped) and len(inner) > 1:
            if has_loss:
                # Metrics and other operations outside of the model and its loss are no layers.
                paths = [
                    path if path.startswith((f"{model}/", _KERAS_3_LOSS)) else "" for path in paths
                ]
            paths = [path.removeprefix(f"{model}/") for path in paths]
            break
    operations = set(paths)
    scopes = []
    for number, path in enumerate(paths):
        scope = path.rpartition("/")[0]
        while scope and scope in operations:
            scope = scope.rpartition("/")[0]
        if not scope and types is not None and types[number] in VARIABLES:
            scope = path
        scopes.append(scope)
    return scopes


def _is_keras_3(names: Sequence[str]) -> bool:
    """Returns whether a model is of Keras 3: a training step, or a SavedModel with layers."""
    if any(name.startswith(_KERAS_3_LOSS) for name in names):
        return True
    # A variable has the scope of its layer, and the operations of a call have it with a number.
    scopes = {name.rpartition("/")[0] for name in names if not _CALLS.search(name)}
    layers = {scope.rpartition("/")[2] for scope in scopes if scope}
    called = {part for name in names if _CALLS.search(name) for part in name.split("/")[:-1]}
    numbered = layers & {_CALL_NUMBER.sub("", f"{part}/")[:-1] for part in called} - called
    return len(numbered) > len(layers) / 2


def _keras_layers(
    problem: PlacementProblem, backward: np.ndarray
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Finds the layers of a Keras model by their scopes, in the order in which they run.

    Operations in no scope of a layer, such as those of the optimizer, belong to the layer that they
    read from, else to the one that reads from them.

    Returns:
        int32 [num_operations], and the names of the layers.
    """
    scopes = [scope.split("/")[0] for scope in model_scopes(problem, backward)]
    order = problem.order.tolist()
    names = list(dict.fromkeys(scopes[i] for i in order if scopes[i] and not backward[i]))
    number = {name: layer for layer, name in enumerate(names)}
    layers = np.array([number.get(scope, -1) for scope in scopes], np.int32)
    before: list[list[int]] = [[] for _ in scopes]
    after: list[list[int]] = [[] for _ in scopes]
    for a, b in problem.edges.tolist():
        before[b].append(a)
        after[a].append(b)
    for neighbors, ordered in ((before, order), (after, reversed(order))):
        for i in ordered:
            if layers[i] < 0:
                layers[i] = next((layers[j] for j in neighbors[i] if layers[j] >= 0), -1)
    layers[layers < 0] = 0
    return layers, tuple(plain_text(name) for name in names)


def _layer_names(
    problem: PlacementProblem, layers: np.ndarray, backward: np.ndarray
) -> tuple[str, ...]:
    """Names each layer after the scopes of most of its time.

    An operation without a scope, such as the logits of tied embeddings, counts by its own name if
    it is in no call.
    """
    scopes: dict[int, list[tuple[str, float]]] = collections.defaultdict(list)
    of_operations = model_scopes(problem, backward)
    op_secs = problem.compute_secs.min(axis=1).tolist()
    # Prefer names of the forward pass, which people have chosen.
    for wanted in (False, True):
        found = set(scopes)
        for scope, layer, is_backward, secs, name in zip(
            of_operations,
            layers.tolist(),
            backward.tolist(),
            op_secs,
            problem.operation_names,
            strict=True,
        ):
            if is_backward == wanted and layer not in found:
                if not scope and "/" not in name:
                    scope = name
                scopes[layer].append((_STEP.split(scope)[0], secs))
    most = {layer: describe_scopes(of_layer) for layer, of_layer in scopes.items()}
    of_name = collections.Counter(most.values())
    named = []
    for layer in range(int(layers.max(initial=-1)) + 1):
        scope = most.get(layer, "")
        is_clear = scope and of_name[scope] == 1
        named.append(plain_text(scope if is_clear else f"{scope} (layer {layer})".strip()))
    return tuple(named)


def describe_scopes(scopes: Sequence[tuple[str, float]]) -> str:
    """Finds the longest scope that contains most of the time; else the first and the last of many.

    Args:
        scopes: the scope and the time of each operation. If none takes time, their numbers count.
    """
    weights: dict[str, float] = collections.defaultdict(float)
    has_time = any(secs > 0 for scope, secs in scopes if scope)
    for scope, secs in scopes:
        if scope:
            weights[scope] += secs if has_time else 1.0
    if not weights:
        return ""
    total = sum(weights.values())
    common = scope = max(weights, key=weights.__getitem__)
    while scope:
        inside = sum(
            weight
            for each, weight in weights.items()
            if each == scope or each.startswith(f"{scope}/")
        )
        # Exactly one half is not most.
        if inside > _LEAST_SCOPE_SHARE * total:
            return scope
        scope = scope.rpartition("/")[0]
    outer: dict[str, float] = collections.defaultdict(float)
    for each, weight in weights.items():
        outer[each.split("/")[0]] += weight
    large = [each for each, weight in outer.items() if weight >= _LEAST_PART_SHARE * total]
    if len(large) == 2:
        return ", ".join(large)
    return f"{large[0]} … {large[-1]}" if len(large) > 2 else common
