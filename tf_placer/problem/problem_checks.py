"""Checks of a placement problem, whose messages name entries of the file format."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from graph_passes.util.json_text import format_value
from graph_passes.util.topological_order import find_cycle
from tf_placer.problem.problem_columns import ProblemColumns
from tf_placer.problem.problem_device import check_devices, check_links, check_text
from tf_placer.problem.problem_error import ProblemError

__all__ = ["check_problem", "find_legal_devices", "float_array", "int_array"]

# A typing error in a group number must not allocate all memory.
_MAX_GROUPS_BEYOND_OPERATIONS = 2**20
_MAX_CYCLE_OPERATIONS_IN_MESSAGE = 8


def int_array(name: str, values: object) -> np.ndarray:
    """Copies integers into a new int64 array.

    Raises:
        ProblemError: the values are not integers; the message names the entry `name`.
    """
    array = _array(name, values)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ProblemError(f"{name} must be an array of whole numbers, not of {array.dtype}")
    if array.size and array.max() > np.iinfo(np.int64).max:
        raise ProblemError(f"{name} must fit into int64, and {array.max()} does not")
    return array.astype(np.int64)


def float_array(name: str, values: object) -> np.ndarray:
    """Copies numbers into a new float64 array.

    Raises:
        ProblemError: the values are not numbers; the message names the entry `name`.
    """
    array = _array(name, values)
    if not np.issubdtype(array.dtype, np.floating) and not np.issubdtype(array.dtype, np.integer):
        raise ProblemError(f"{name} must be an array of numbers, not of {array.dtype}")
    return array.astype(np.float64)


def find_legal_devices(compute_secs: np.ndarray, groups: np.ndarray, num_groups: int) -> np.ndarray:
    """Finds the devices on which all operations of a group may run.

    Args:
        compute_secs: float64 [num_operations, num_devices], infinite where an operation may not go.
        groups: int [num_operations], the group of each operation.
        num_groups: the number of groups.

    Returns:
        bool [num_groups, num_devices]; a group without operations may go anywhere.
    """
    legal = np.ones([num_groups, compute_secs.shape[1]], np.bool_)
    operations, devices = np.nonzero(np.isinf(compute_secs))
    legal[groups[operations], devices] = False
    return legal


def check_problem(problem: ProblemColumns) -> None:
    """Checks a problem, whose arrays may still be wider than their final types.

    Raises:
        ProblemError: the problem is invalid.
    """
    _check_shapes(problem)
    check_devices(problem.devices)
    check_links(problem.devices, problem.links)
    _check_operations(problem)
    _check_groups(problem, "group", problem.groups)
    if problem.coarse_groups is not None:
        _check_groups(problem, "coarse_group", problem.coarse_groups)
        _check_shared("coarse_group", problem.coarse_groups, "group", problem.groups)
    if problem.layers is not None:
        _refuse(
            problem.layers,
            (problem.layers < 0) | (problem.layers > np.iinfo(np.int32).max),
            lambda i: f"operations[{i}].layer",
            lambda i: f"operation {format_value(problem.operation_names[i])}",
            f"a number from 0 to {np.iinfo(np.int32).max}",
        )
        _check_shared("layer", problem.layers, "group", problem.groups)
        if problem.coarse_groups is not None:
            _check_shared("layer", problem.layers, "coarse_group", problem.coarse_groups)
    if problem.batch_size is not None and problem.batch_size < 1:
        raise ProblemError(f"batch_size is {problem.batch_size}: it must be at least 1")
    _check_tensors(problem)
    _check_control_edges(problem)
    _check_order(problem)
    _check_sums(problem)


def _check_shapes(problem: ProblemColumns) -> None:
    if not problem.devices:
        raise ProblemError("devices is empty: there must be at least one")
    if not problem.operation_names:
        raise ProblemError("operations is empty: there must be at least one")
    count, tensors = problem.num_operations, len(np.atleast_1d(problem.tensor_producers))
    expected = {
        "compute_secs": (count, problem.num_devices),
        "resident_bytes": (count,),
        "temp_bytes": (count,),
        "groups": (count,),
        **({} if problem.coarse_groups is None else {"coarse_groups": (count,)}),
        **({} if problem.layers is None else {"layers": (count,)}),
        "tensor_producers": (tensors,),
        "tensor_bytes": (tensors,),
        "local_bytes": (tensors,),
        "consumer_start": (tensors + 1,),
        "consumers": (problem.consumers.size,),
        "control_edges": (len(np.atleast_1d(problem.control_edges)), 2),
    }
    for name, shape in expected.items():
        found = getattr(problem, name).shape
        if found != shape:
            raise ProblemError(
                f"{name} must be of shape {list(shape)}, not {list(found)}, with {count} "
                f"operations, {problem.num_devices} devices and {tensors} tensors"
            )
    start = problem.consumer_start
    if start[0] != 0 or (np.diff(start) < 0).any() or start[-1] != len(problem.consumers):
        raise ProblemError(
            f"consumer_start must rise from 0 to {len(problem.consumers)}, the length of consumers"
        )


def _check_operations(problem: ProblemColumns) -> None:
    names = problem.operation_names
    if set(map(type, names)) != {str}:
        for index, name in enumerate(names):
            check_text(f"operations[{index}].name", name)
    types = problem.operation_types
    if types is not None and len(types) != len(names):
        raise ProblemError(f"there are {len(types)} operation_types for {len(names)} operations")
    if types is not None and set(map(type, types)) != {str}:
        for index, name in enumerate(types):
            check_text(f"operations[{index}].type", name)
    secs = problem.compute_secs
    _refuse(
        secs,
        ~(secs >= 0),
        lambda i, d: f"operations[{i}].compute_secs[{d}]",
        lambda i, d: (
            f"operation {format_value(names[i])} on {format_value(problem.devices[d].name)}"
        ),
        "a number of seconds, 0 or more, or null where the operation may not go",
    )
    nowhere = np.flatnonzero(np.isinf(secs).all(axis=1))
    if nowhere.size:
        raise ProblemError(
            f"{_operation(problem, nowhere[0])} may go nowhere: its compute_secs are all null"
        )
    for field in ("resident_bytes", "temp_bytes"):
        values = getattr(problem, field)
        _refuse(
            values,
            values < 0,
            lambda i, field=field: f"operations[{i}].{field}",
            lambda i: f"operation {format_value(names[i])}",
            "a number of bytes, 0 or more",
        )


def _check_groups(problem: ProblemColumns, entry: str, groups: np.ndarray) -> None:
    limit = max(problem.num_operations, _MAX_GROUPS_BEYOND_OPERATIONS)
    _refuse(
        groups,
        (groups < 0) | (groups >= limit),
        lambda i: f"operations[{i}].{entry}",
        lambda i: f"operation {format_value(problem.operation_names[i])}",
        f"a number from 0 to {limit - 1}",
    )
    count = int(groups.max(initial=-1)) + 1
    stuck = np.flatnonzero(~find_legal_devices(problem.compute_secs, groups, count).any(axis=1))
    if stuck.size:
        members = np.flatnonzero(groups == stuck[0])
        barred = [
            _operation(problem, members[np.argmax(np.isinf(problem.compute_secs[members, device]))])
            for device in range(problem.num_devices)
        ]
        raise ProblemError(
            f"{entry.replace('_', ' ')} {stuck[0]} may go nowhere: no device is open to all its "
            f"operations, among them {' and '.join(list(dict.fromkeys(barred))[:4])}"
        )


def _check_shared(entry: str, values: np.ndarray, kind: str, groups: np.ndarray) -> None:
    """Checks that all operations of a group have the same value."""
    of_group = np.zeros(int(groups.max()) + 1, np.int64)
    of_group[groups] = values
    wrong = np.flatnonzero(of_group[groups] != values)
    if wrong.size:
        one = wrong[0]
        other = np.flatnonzero((groups == groups[one]) & (values != values[one]))[0]
        first, second = sorted((int(one), int(other)))
        raise ProblemError(
            f"operations[{second}].{entry} is {values[second]}: it must be {values[first]}, as for "
            f"operations[{first}], which is of {kind.replace('_', ' ')} {groups[one]}, too"
        )


def _check_tensors(problem: ProblemColumns) -> None:
    producers, start = problem.tensor_producers, problem.consumer_start
    numbers_text = f"the index of an operation, 0 to {problem.num_operations - 1}"
    _refuse(
        producers,
        (producers < 0) | (producers >= problem.num_operations),
        lambda t: f"tensors[{t}].producer",
        None,
        numbers_text,
    )

    def origin(tensor: int) -> str:
        return f"made by operation {format_value(problem.operation_names[producers[tensor]])}"

    _refuse(
        problem.tensor_bytes,
        problem.tensor_bytes < 0,
        lambda t: f"tensors[{t}].bytes",
        origin,
        "a number of bytes, 0 or more",
    )

    _refuse(
        problem.local_bytes,
        (problem.local_bytes < 0) | (problem.local_bytes > problem.tensor_bytes),
        lambda t: f"tensors[{t}].local_bytes",
        origin,
        "a number of bytes from 0 to those of the tensor",
    )

    shapes = problem.tensor_shapes
    if shapes is not None and len(shapes) != len(producers):
        raise ProblemError(f"there are {len(shapes)} tensor_shapes for {len(producers)} tensors")
    for tensor, shape in enumerate(shapes or ()):
        for axis, size in enumerate(shape):
            if type(size) is not int or size < -1:
                raise ProblemError(
                    f"tensors[{tensor}].shape[{axis}] is {format_value(size)} ({origin(tensor)}): "
                    "it must be a whole number, or -1 for an unknown one"
                )

    def tensor_of(read: int) -> int:
        return int(np.searchsorted(start, read, side="right")) - 1

    _refuse(
        problem.consumers,
        (problem.consumers < 0) | (problem.consumers >= problem.num_operations),
        lambda read: f"tensors[{tensor_of(read)}].consumers[{read - start[tensor_of(read)]}]",
        lambda read: origin(tensor_of(read)),
        numbers_text,
    )


def _check_control_edges(problem: ProblemColumns) -> None:
    edges = problem.control_edges
    _refuse(
        edges,
        (edges < 0) | (edges >= problem.num_operations),
        lambda i, end: f"control_edges[{i}][{end}]",
        None,
        f"the index of an operation, 0 to {problem.num_operations - 1}",
    )


def _check_order(problem: ProblemColumns) -> None:
    if len(problem.order) == problem.num_operations:
        return
    cycle = find_cycle(problem.num_operations, problem.edges)
    steps = [_operation(problem, index) for index in cycle[:_MAX_CYCLE_OPERATIONS_IN_MESSAGE]]
    if len(cycle) > _MAX_CYCLE_OPERATIONS_IN_MESSAGE:
        steps.append(f"{len(cycle) - _MAX_CYCLE_OPERATIONS_IN_MESSAGE} more")
    raise ProblemError(f"the operations form a cycle: {' -> '.join([*steps, steps[0]])}")


def _check_sums(problem: ProblemColumns) -> None:
    """Checks that no sum in a simulation can overflow its type."""
    held = sum(
        float(values.sum(dtype=np.float64))
        for values in (problem.resident_bytes, problem.temp_bytes, problem.tensor_bytes)
    )
    if held > 2.0**62:
        raise ProblemError("the bytes of operations and tensors add up to more than 2**62")
    sent = len(problem.consumers) + len(problem.control_edges)
    with np.errstate(over="ignore"):
        compute_secs = problem.compute_secs.sum(where=np.isfinite(problem.compute_secs))
        transfer_secs = sum(
            sent * link.latency_secs
            + np.float64(held * problem.num_devices) / link.bandwidth_bytes_per_sec
            for link in problem.links
        )
    if not math.isfinite(compute_secs + transfer_secs):
        raise ProblemError("the seconds of operations and transfers add up to infinity")


def _refuse(
    values: np.ndarray,
    bad: np.ndarray,
    entry: Callable[..., str],
    about: Callable[..., str] | None,
    wanted: str,
) -> None:
    """Raises a `ProblemError` about the first bad value, if any is bad."""
    if not bad.any():
        return
    index = np.argwhere(bad)[0].tolist()
    of = f" ({about(*index)})" if about else ""
    raise ProblemError(
        f"{entry(*index)} is {format_value(values[tuple(index)])}{of}: it must be {wanted}"
    )


def _operation(problem: ProblemColumns, index: int) -> str:
    return f"operations[{index}] ({format_value(problem.operation_names[index])})"


def _array(name: str, values: object) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError as error:  # Rows of different lengths.
        raise ProblemError(f"{name} is no array: {error}") from None
