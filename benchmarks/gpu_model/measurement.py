"""The file that `benchmarks.gpu_model.measure` writes, read where no PyTorch is."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.gpu_model.cases import Case

__all__ = ["MeasuredCase", "Measurement", "read_measurement"]

_GZIP_MAGIC = b"\x1f\x8b"


@dataclasses.dataclass(frozen=True)
class MeasuredCase:
    """An operation that was measured.

    Attributes:
        case: the operation.
        call: the call of PyTorch that stood for it.
        secs: seconds on the device by precision, with inputs that come from its memory.
        cached_secs: the same with the inputs of the last call, which caches may still hold.
        host_secs: until the host had started it, by precision.
    """

    case: Case
    call: str
    secs: Mapping[str, float]
    cached_secs: Mapping[str, float]
    host_secs: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Measurement:
    """All that was measured on a device.

    Attributes:
        device: its name, clocks and libraries.
        limits: launches, copies and large products by name.
        cases: the operations that were measured.
        failures: the errors of the others that were tried, by key.
        missing: the number of operations that were not tried.
        content: the file, for keeping it.
    """

    device: Mapping[str, Any]
    limits: Mapping[str, Mapping[str, Any]]
    cases: tuple[MeasuredCase, ...]
    failures: Mapping[str, str]
    missing: int
    content: bytes


def read_measurement(path: str | os.PathLike[str], cases: Iterable[Case]) -> Measurement:
    """Reads a file of measurements, also one that ends early; rows of other cases are left out.

    Args:
        path: the file; it may be compressed.
        cases: the operations that it may hold.

    Raises:
        OSError: it cannot be read.
        ValueError: a line before the last is no JSON, or there is no row of a device or of a case.
    """
    content = pathlib.Path(path).read_bytes()
    if content.startswith(_GZIP_MAGIC):
        content = gzip.decompress(content)
    *lines, last = content.decode().splitlines()
    rows = [json.loads(line) for line in lines]
    # The measurement may have been ended while it wrote.
    with contextlib.suppress(ValueError):
        rows.append(json.loads(last))
    # The last row of the device has the clocks under load.
    devices = [row["device"] for row in rows if "device" in row]
    by_key = {case.key: case for case in cases}
    failures, measured = {}, {}
    for row in rows:
        key = row.get("case")
        if key is not None and "error" in row:
            failures[key] = row["error"]
        elif key in by_key:
            names = ("call", "secs", "cached_secs", "host_secs")
            measured[key] = MeasuredCase(by_key[key], *(row[name] for name in names))
    if not devices or not measured:
        raise ValueError(
            f"{os.fspath(path)} has no device, or none of the cases; collect and measure with the "
            "same version"
        )
    missing = len(by_key.keys() - measured.keys() - failures.keys())
    limits = {row["limit"]: row for row in rows if "limit" in row}
    return Measurement(devices[-1], limits, tuple(measured.values()), failures, missing, content)
