"""Placement problems in JSON files; README.md in this folder describes them."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from graph_passes.json_text import parse_json
from tf_placer.files import read_bytes, write_json
from tf_placer.machines.machine import Link
from tf_placer.problem.json_entries import (
    check_all_entries,
    check_entries,
    list_at,
    object_with_unique_entries,
    whole_number,
    whole_numbers,
)
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice
from tf_placer.problem.problem_error import ProblemError, shown

__all__ = ["problem_from_json", "problem_to_json", "read_problem", "write_problem"]

_FORMAT = 1
# Entries that all operations have or none has, and what they are called in a problem.
_NUMBERS = {"coarse_group": "coarse_groups", "layer": "layers"}
_OPTIONAL = {"type": "operation_types", **_NUMBERS}
# What operations of a device lose to transfers; nothing if left out.
_LOST_TO_TRANSFERS = ("transfer_share", "transfer_overhead_secs")


def read_problem(path: str | os.PathLike[str]) -> PlacementProblem:
    """Reads a problem file, or standard input, which is called "-".

    Raises:
        ProblemError: the file cannot be read or holds no problem; the message names it, and the
            entry that is wrong.
    """
    path = os.fspath(path)
    try:
        text = read_bytes(path)
    except OSError as error:
        raise ProblemError(f"cannot read the problem {path!r}: {error.strerror}") from None
    try:
        value = parse_json(text, object_with_unique_entries, finite=False)
    except json.JSONDecodeError as error:
        raise ProblemError(
            f"{path}: line {error.lineno}, column {error.colno} is not JSON: {error.msg}"
        ) from None
    except ValueError as error:  # Such as other than UTF-8, or nested too deep.
        raise ProblemError(f"{path}: this is not JSON: {error}") from None
    try:
        return problem_from_json(value)
    except ProblemError as error:
        raise ProblemError(f"{path}: {error}") from None


def write_problem(problem: PlacementProblem, path: str | os.PathLike[str]) -> None:
    """Writes a problem file, whole or not at all.

    Raises:
        ProblemError: the file cannot be written; the message names it.
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
                    for entry in _LOST_TO_TRANSFERS
                    if getattr(device, entry)
                },
                **({"asynchronous": True} if device.is_asynchronous else {}),
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
                "consumers": consumers[start:end],
            }
            for producer, size, local_bytes, (start, end) in zip(
                problem.tensor_producers.tolist(),
                problem.tensor_bytes.tolist(),
                problem.local_bytes.tolist(),
                itertools.pairwise(starts),
                strict=True,
            )
        ],
        "control_edges": problem.control_edges.tolist(),
    }


def problem_from_json(value: object) -> PlacementProblem:
    """Reads what `problem_to_json` wrote, or anything else in that form.

    Raises:
        ProblemError: the value is not a problem; the message names the entry that is wrong.
    """
    if isinstance(value, dict) and "format" in value:
        version = value["format"]
        if isinstance(version, bool) or version != _FORMAT:
            raise ProblemError(f"format is {shown(version)}: it must be {_FORMAT}")
    parts = ("devices", "links", "operations", "tensors", "control_edges")
    check_entries(value, "the problem", ("format", *parts))
    assert isinstance(value, dict)
    devices, links, operations, tensors, control_edges = (
        list_at(value[name], name) for name in parts
    )
    check_all_entries(
        devices,
        "devices",
        ("name", "kind", "memory_bytes", "slots"),
        (*_LOST_TO_TRANSFERS, "asynchronous"),
    )
    check_all_entries(
        links,
        "links",
        ("source", "destination", "latency_secs", "bandwidth_bytes_per_sec"),
        ("channel",),
    )
    optional = [
        entry
        for entry in _OPTIONAL
        if any(isinstance(each, dict) and entry in each for each in operations)
    ]
    check_all_entries(
        operations,
        "operations",
        ("name", "compute_secs", "resident_bytes", "group", *optional),
        ("temp_bytes",),
    )
    check_all_entries(tensors, "tensors", ("producer", "bytes", "consumers"), ("local_bytes",))
    consumers = [
        list_at(tensor["consumers"], f"tensors[{index}].consumers")
        for index, tensor in enumerate(tensors)
    ]
    return PlacementProblem(
        devices=tuple(_device(index, device) for index, device in enumerate(devices)),
        links=tuple(Link(**link) for link in links),
        operation_names=tuple(operation["name"] for operation in operations),
        compute_secs=_compute_secs(operations, len(devices)),
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
            _pairs(control_edges), lambda row: f"control_edges[{row}]"
        ).reshape(-1, 2),
        operation_types=(
            tuple(operation["type"] for operation in operations) if "type" in optional else None
        ),
        **{
            name: _column(operations, "operations", entry)
            for entry, name in _NUMBERS.items()
            if entry in optional
        },
    )


def _device(index: int, device: dict[str, Any]) -> ProblemDevice:
    memory_bytes, slots = (
        whole_number(device[name], lambda name=name: f"devices[{index}].{name}")  # type: ignore[misc]
        for name in ("memory_bytes", "slots")
    )
    return ProblemDevice(
        device["name"],
        device["kind"],
        memory_bytes,
        slots,
        **{entry: device[entry] for entry in _LOST_TO_TRANSFERS if entry in device},
        is_asynchronous=device.get("asynchronous", False),
    )


def _compute_secs(operations: Sequence[dict[str, Any]], num_devices: int) -> np.ndarray:
    """Reads the seconds, float64 [num_operations, num_devices], null as infinity."""
    rows = [operation["compute_secs"] for operation in operations]
    for row, secs in enumerate(rows):
        if len(list_at(secs, f"operations[{row}].compute_secs")) != num_devices:
            raise ProblemError(
                f"operations[{row}].compute_secs ({shown(operations[row]['name'])}) has "
                f"{len(secs)} numbers for {num_devices} devices"
            )
    flat = list(itertools.chain.from_iterable(rows))
    if not {int, float, type(None)}.issuperset(map(type, flat)) or math.inf in flat:
        _refuse_first(flat, _is_secs, num_devices, "a number of seconds or null")
    try:
        secs = np.array([math.inf if each is None else each for each in flat], np.float64)
    except OverflowError:  # Integers of hundreds of digits.
        _refuse_first(flat, _fits_float, num_devices, "a number that fits into float64")
        raise
    return secs.reshape(len(rows), num_devices)


def _refuse_first(
    flat: Iterable[object], accepts: Callable[[object], bool], num_devices: int, wanted: str
) -> None:
    for index, each in enumerate(flat):
        if not accepts(each):
            row, device = divmod(index, num_devices)
            raise ProblemError(
                f"operations[{row}].compute_secs[{device}] is {shown(each)}: it must be {wanted}"
            )


def _is_secs(value: object) -> bool:
    return value is None or (type(value) in (int, float) and value != math.inf)


def _fits_float(value: object) -> bool:
    return not isinstance(value, int) or abs(value) < 2**1023


def _column(items: Sequence[dict[str, Any]], where: str, name: str) -> np.ndarray:
    """Reads an entry of each item, int64 [len(items)]; 0 where it is left out."""
    values = [item.get(name, 0) for item in items]
    return whole_numbers(values, lambda index: f"{where}[{index}].{name}")


def _pairs(rows: Sequence[Any]) -> Sequence[Sequence[Any]]:
    for index, row in enumerate(rows):
        if len(list_at(row, f"control_edges[{index}]")) != 2:
            raise ProblemError(
                f"control_edges[{index}] has {len(row)} entries: it must be the operation before "
                "and the operation after"
            )
    return rows


def _whole_rows(rows: Sequence[Sequence[Any]], entry: Callable[[int], str]) -> np.ndarray:
    """Joins the rows one after the other, int64."""

    def place(index: int) -> str:
        row = 0
        while index >= len(rows[row]):
            index -= len(rows[row])
            row += 1
        return f"{entry(row)}[{index}]"

    return whole_numbers(list(itertools.chain.from_iterable(rows)), place)
