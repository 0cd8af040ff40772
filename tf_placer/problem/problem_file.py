"""Placement problems in JSON files; README.md in this folder describes them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
import pathlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from graph_passes.util.json_records import (
    InvalidEntryError,
    check_entries,
    check_format,
    read_record,
    read_value,
)
from graph_passes.util.json_text import format_value, parse_json
from tf_placer.files import read_bytes, write_json
from tf_placer.machines.catalog import is_catalog_name
from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice
from tf_placer.problem.problem_error import ProblemError

__all__ = [
    "check_each_once",
    "name_problem_files",
    "problem_from_json",
    "problem_to_json",
    "read_problem",
    "write_problem",
]

_FORMAT = 1
# Entries that all operations have or none has, with their names in `PlacementProblem`.
_OPTIONAL_NUMBERS = {"coarse_group": "coarse_groups", "layer": "layers"}
_OPTIONAL = {"type": "operation_types", **_OPTIONAL_NUMBERS}
# Entries of devices that are left out where they are 0.
_LEFT_OUT_AT_ZERO = ("transfer_share", "transfer_overhead_secs", "fixed_secs")


@dataclasses.dataclass(frozen=True)
class _Device:
    """The file entries of a `ProblemDevice`, which checks the values itself."""

    name: Any
    kind: Any
    memory_bytes: int
    slots: int
    transfer_share: Any = 0.0
    transfer_overhead_secs: Any = 0.0
    asynchronous: Any = False
    copies_in_stream: Any = False
    fixed_secs: Any = 0.0


@dataclasses.dataclass(frozen=True)
class _File:
    """The entries of a problem file."""

    format: Any
    devices: tuple[_Device, ...]
    links: list[Any]
    operations: list[Any]
    tensors: list[Any]
    control_edges: list[Any]
    batch_size: int | None = None
    graph_name: str = ""
    notes: tuple[str, ...] = ()


def read_problem(path: str | os.PathLike[str]) -> PlacementProblem:
    """Reads a problem file, or standard input if the path is "-".

    Raises:
        OSError: the file cannot be read; the message names it.
        ProblemError: the file holds no problem; the message names the file and the wrong entry.
        TypeError: the path is none.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            "a problem is what tf_placer.profile returns for one machine, or its file (.json), not "
            f"of type {type(path).__name__}"
        )
    path = os.fspath(path)
    try:
        text = read_bytes(path)
    except OSError as error:
        reason = f"cannot read the problem {path!r}: {error.strerror}{_suggest_profile(path)}"
        raise type(error)(reason) from None
    try:
        value = parse_json(text, finite=False)
    except json.JSONDecodeError as error:
        raise ProblemError(
            f"{path}: line {error.lineno}, column {error.colno} is not JSON: {error.msg}. Perhaps "
            "it was cut off: `profile` makes it again"
        ) from None
    except ValueError as error:  # For example, bad UTF-8 or too deep nesting.
        raise ProblemError(
            f"{path}: this is not JSON: {error}. `profile` makes problem files of graphs"
        ) from None
    if isinstance(value, dict) and "format" not in value:
        raise ProblemError(
            f"{path} is no problem file, which `profile` makes of a graph: the problem has no "
            'entry "format"'
        )
    try:
        return problem_from_json(value)
    except ProblemError as error:
        raise ProblemError(f"{path}: {error}") from None


def _suggest_profile(path: str) -> str:
    """Suggests `profile` in a message on an unreadable problem whose name is that of a machine."""
    if not is_catalog_name(path):
        return ""
    return f" ({path} is a machine: `profile` makes the problem of a graph on it)"


def check_each_once(machines: Sequence[str]) -> None:
    """Checks that there are machines, and that each has a name of its own.

    Raises:
        ValueError: there are none, or two have the same name.
    """
    names = _name_machines(machines)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"each machine is given once, unlike {', '.join(machines) or 'none'}")


def _name_machines(machines: Sequence[str]) -> list[str]:
    return [pathlib.PurePath(machine).name.removesuffix(".json") for machine in machines]


def name_problem_files(
    machines: Sequence[str], directory: str | os.PathLike[str]
) -> list[str | os.PathLike[str]]:
    """Names the files of the problems of a graph on several machines, and makes their directory.

    Args:
        machines: the names of the machines, or machine files.
        directory: the directory.

    Raises:
        OSError: the directory cannot be made.
        ValueError: there are no machines, or two have the same file.
    """
    check_each_once(machines)
    os.makedirs(directory, exist_ok=True)
    return [os.path.join(directory, f"{name}.json") for name in _name_machines(machines)]


def write_problem(problem: PlacementProblem, path: str | os.PathLike[str]) -> None:
    """Writes a problem file atomically.

    Raises:
        ProblemError: the file cannot be written; the message names the file.
    """
    try:
        write_json(path, problem_to_json(problem))
    except OSError as error:
        raise ProblemError(
            f"cannot write the problem {os.fspath(path)!r}: {error.strerror}"
        ) from None


def problem_to_json(problem: PlacementProblem) -> dict[str, Any]:
    """Makes the JSON form of a problem."""
    starts = problem.consumer_start.tolist()
    consumers = problem.consumers.tolist()
    optional = {
        entry: np.asarray(getattr(problem, name)).tolist()
        for entry, name in _OPTIONAL.items()
        if getattr(problem, name) is not None
    }
    return {
        "format": _FORMAT,
        "devices": [
            {
                "name": device.name,
                "kind": device.kind,
                "memory_bytes": device.memory_bytes,
                "slots": device.slots,
                **{
                    entry: getattr(device, entry)
                    for entry in _LEFT_OUT_AT_ZERO
                    if getattr(device, entry)
                },
                **({"asynchronous": True} if device.is_asynchronous else {}),
                **({"copies_in_stream": True} if device.copies_in_stream else {}),
            }
            for device in problem.devices
        ],
        "links": [
            {
                "source": link.source,
                "destination": link.destination,
                "latency_secs": link.latency_secs,
                "bandwidth_bytes_per_sec": link.bandwidth_bytes_per_sec,
                **({} if link.channel is None else {"channel": link.channel}),
            }
            for link in problem.links
        ],
        "operations": [
            {
                "name": name,
                "compute_secs": [None if each == math.inf else each for each in secs],
                "resident_bytes": resident_bytes,
                "temp_bytes": temp_bytes,
                "group": group,
                **{entry: values[index] for entry, values in optional.items()},
            }
            for index, (name, secs, resident_bytes, temp_bytes, group) in enumerate(
                zip(
                    problem.operation_names,
                    problem.compute_secs.tolist(),
                    problem.resident_bytes.tolist(),
                    problem.temp_bytes.tolist(),
                    problem.groups.tolist(),
                    strict=True,
                )
            )
        ],
        "tensors": [
            {
                "producer": producer,
                "bytes": size,
                **({} if local_bytes == size else {"local_bytes": local_bytes}),
                **({} if shape is None else {"shape": list(shape)}),
                "consumers": consumers[start:end],
            }
            for producer, size, local_bytes, shape, (start, end) in zip(
                problem.tensor_producers.tolist(),
                problem.tensor_bytes.tolist(),
                problem.local_bytes.tolist(),
                problem.tensor_shapes or itertools.repeat(None, problem.num_tensors),
                itertools.pairwise(starts),
                strict=True,
            )
        ],
        "control_edges": problem.control_edges.tolist(),
        **({} if problem.batch_size is None else {"batch_size": problem.batch_size}),
        **({"graph_name": problem.graph_name} if problem.graph_name else {}),
        **({"notes": list(problem.notes)} if problem.notes else {}),
    }


def problem_from_json(value: object) -> PlacementProblem:
    """Makes a problem from its JSON form, the inverse of `problem_to_json`.

    Raises:
        ProblemError: the value is not a problem; the message names the wrong entry.
    """
    try:
        check_format(value, _FORMAT, "the problem")
        return _problem(read_record(_File, value, "the problem", exact=True))
    except InvalidEntryError as error:
        raise ProblemError(str(error)) from None


def _problem(file: _File) -> PlacementProblem:
    operations, tensors = file.operations, file.tensors
    _check_all_entries(
        file.links,
        "links",
        ("source", "destination", "latency_secs", "bandwidth_bytes_per_sec"),
        ("channel",),
    )
    optional = [
        entry
        for entry in _OPTIONAL
        if any(isinstance(each, dict) and entry in each for each in operations)
    ]
    _check_all_entries(
        operations,
        "operations",
        ("name", "compute_secs", "resident_bytes", "group", *optional),
        ("temp_bytes",),
    )
    has_shapes = any(isinstance(each, dict) and "shape" in each for each in tensors)
    _check_all_entries(
        tensors,
        "tensors",
        ("producer", "bytes", "consumers", *(("shape",) if has_shapes else ())),
        ("local_bytes",),
    )
    consumers = _lists(
        [tensor["consumers"] for tensor in tensors], lambda i: f"tensors[{i}].consumers"
    )
    return PlacementProblem(
        devices=tuple(ProblemDevice(*dataclasses.astuple(device)) for device in file.devices),
        links=tuple(Link(**link) for link in file.links),
        operation_names=tuple(operation["name"] for operation in operations),
        compute_secs=_compute_secs(operations, len(file.devices)),
        resident_bytes=_column(operations, "operations", "resident_bytes"),
        temp_bytes=_column(operations, "operations", "temp_bytes"),
        groups=_column(operations, "operations", "group"),
        tensor_producers=_column(tensors, "tensors", "producer"),
        tensor_bytes=_column(tensors, "tensors", "bytes"),
        local_bytes=_column(
            [{"local_bytes": tensor["bytes"], **tensor} for tensor in tensors],
            "tensors",
            "local_bytes",
        ),
        consumer_start=np.cumsum([0, *map(len, consumers)]),
        consumers=_whole_rows(consumers, lambda row: f"tensors[{row}].consumers"),
        control_edges=_whole_rows(
            _pairs(file.control_edges), lambda row: f"control_edges[{row}]"
        ).reshape(-1, 2),
        operation_types=(
            tuple(operation["type"] for operation in operations) if "type" in optional else None
        ),
        batch_size=file.batch_size,
        graph_name=file.graph_name,
        notes=file.notes,
        tensor_shapes=(
            tuple(
                map(tuple, _lists([each["shape"] for each in tensors], "tensors[{}].shape".format))
            )
            if has_shapes
            else None
        ),
        **{
            name: _column(operations, "operations", entry)
            for entry, name in _OPTIONAL_NUMBERS.items()
            if entry in optional
        },
    )


def _check_all_entries(
    items: Sequence[Any], where: str, required: Collection[str], optional: Collection[str]
) -> None:
    least, most = frozenset(required), frozenset((*required, *optional))
    for index, item in enumerate(items):
        if type(item) is not dict or (item.keys() != least and item.keys() != most):
            check_entries(item, required, optional, f"{where}[{index}]")


def _compute_secs(operations: Sequence[dict[str, Any]], num_devices: int) -> np.ndarray:
    """Reads compute times, float64 [num_operations, num_devices], with null as infinity."""
    rows = _lists(
        [operation["compute_secs"] for operation in operations],
        lambda row: f"operations[{row}].compute_secs",
    )
    for row, of_devices in enumerate(rows):
        if len(of_devices) != num_devices:
            raise ProblemError(
                f"operations[{row}].compute_secs ({format_value(operations[row]['name'])}) has "
                f"{len(of_devices)} numbers for {num_devices} devices"
            )
    flat = list(itertools.chain.from_iterable(rows))
    if not {int, float, type(None)}.issuperset(map(type, flat)) or math.inf in flat:
        _refuse_first(flat, _is_secs, num_devices, "a number of seconds or null")
    try:
        numbers = np.array([math.inf if each is None else each for each in flat], np.float64)
    except OverflowError:  # Integers with hundreds of digits do not fit into a float.
        _refuse_first(flat, _fits_float, num_devices, "a number that fits into float64")
        raise
    return numbers.reshape(len(rows), num_devices)


def _refuse_first(
    flat: Iterable[object], accepts: Callable[[object], bool], num_devices: int, wanted: str
) -> None:
    for index, each in enumerate(flat):
        if not accepts(each):
            row, device = divmod(index, num_devices)
            raise ProblemError(
                f"operations[{row}].compute_secs[{device}] is {format_value(each)}: it must be "
                f"{wanted}"
            )


def _is_secs(value: object) -> bool:
    return value is None or (type(value) in (int, float) and value != math.inf)


def _fits_float(value: object) -> bool:
    return not isinstance(value, int) or abs(value) < 2**1023


def _column(items: Sequence[dict[str, Any]], where: str, name: str) -> np.ndarray:
    """Reads an entry of each item, int64 [len(items)]; 0 if an item lacks the entry."""
    values = [item.get(name, 0) for item in items]
    return _wholes(values, lambda index: f"{where}[{index}].{name}")


def _pairs(rows: Sequence[Any]) -> Sequence[list[Any]]:
    for index, row in enumerate(_lists(rows, lambda index: f"control_edges[{index}]")):
        if len(row) != 2:
            raise ProblemError(
                f"control_edges[{index}] has {len(row)} entries: it must be the operation before "
                "and the operation after"
            )
    return rows


def _whole_rows(rows: Sequence[Sequence[Any]], entry: Callable[[int], str]) -> np.ndarray:
    """Concatenates rows of integers into an int64 array."""

    def place(index: int) -> str:
        row = 0
        while index >= len(rows[row]):
            index -= len(rows[row])
            row += 1
        return f"{entry(row)}[{index}]"

    return _wholes(list(itertools.chain.from_iterable(rows)), place)


def _lists(rows: Sequence[Any], entry: Callable[[int], str]) -> Sequence[list[Any]]:
    """Checks that each row is a list; `entry` makes the name of a row for messages."""
    for index, row in enumerate(rows):
        if type(row) is not list:
            read_value(list[Any], row, entry(index))
    return rows


def _wholes(values: Sequence[Any], entry: Callable[[int], str]) -> np.ndarray:
    """Reads integers into an int64 array; `entry` makes the name of a value for messages."""
    if {int}.issuperset(map(type, values)):
        with contextlib.suppress(OverflowError):
            return np.array(values, np.int64)
    wholes: list[int] = []
    try:
        for value in values:
            wholes.append(read_value(int, value, ""))
    except InvalidEntryError as error:
        raise error.within(entry(len(wholes))) from None
    return np.array(wholes, np.int64)
