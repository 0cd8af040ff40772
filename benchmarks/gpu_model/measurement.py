"""The file that `benchmarks.gpu_model.measure` writes, read where no PyTorch is."""

from __future__ import annotations

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
# The entries of the row of a limit that are no numbers.
_TEXTS = ("limit", "error")


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
    limits: Mapping[str, Mapping[str, float]]
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
        ValueError: a line before the last is no row, or there is no row of a device or of a case.
    """
    content = pathlib.Path(path).read_bytes()
    if content.startswith(_GZIP_MAGIC):
        content = gzip.decompress(content)
    by_key = {case.key: case for case in cases}
    device: Mapping[str, Any] | None = None
    limits: dict[str, Mapping[str, float]] = {}
    measured: dict[str, MeasuredCase] = {}
    failures: dict[str, str] = {}
    lines = content.decode().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise TypeError("it is no object")
            if "case" in row and "error" in row:
                failures[str(row["case"])] = str(row["error"])
            elif "case" in row:
                if (case := by_key.get(row["case"])) is not None:
                    measured[case.key] = _measured_case(case, row)
            elif "limit" in row:
                limits[str(row["limit"])] = {
                    name: float(value) for name, value in row.items() if name not in _TEXTS
                }
            elif "device" in row:
                # The last one has the clocks under load.
                device = dict(row["device"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if number == len(lines):
                break  # The measurement was ended while it wrote.
            raise ValueError(
                f"{os.fspath(path)}, line {number}: no row of benchmarks.gpu_model.measure "
                f"({type(error).__name__}: {error})"
            ) from None
    if device is None:
        raise ValueError(f"{os.fspath(path)} does not name a device; measure again")
    if not measured:
        raise ValueError(
            f"{os.fspath(path)} has none of the cases; collect and measure with the same version"
        )
    missing = len(by_key.keys() - measured.keys() - failures.keys())
    return Measurement(device, limits, tuple(measured.values()), failures, missing, content)


def _measured_case(case: Case, row: Mapping[str, Any]) -> MeasuredCase:
    names = ("secs", "cached_secs", "host_secs")
    seconds = [{str(key): float(each) for key, each in row[name].items()} for name in names]
    if any(each <= 0 for each in seconds[0].values()) or not seconds[0]:
        raise ValueError("seconds must be positive")
    return MeasuredCase(case, str(row["call"]), *seconds)
