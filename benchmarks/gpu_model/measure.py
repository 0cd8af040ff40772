"""Measures the operations of models on the GPU of this machine, or on its CPU.

Needs PyTorch, and neither TensorFlow nor tf_placer: to be run where a GPU is at hand. Writes a file
of JSON lines, each as soon as it is measured, the most valuable first: whatever ends it, what is
written stays. `benchmarks.gpu_model.compare` reads it where TensorFlow is.

    python3 -m benchmarks.gpu_model.measure --out measured.jsonl
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import pathlib
import time
from collections.abc import Iterator
from typing import Any, TextIO

import torch

from benchmarks.gpu_model.cases import CASES_PATH, Case, read_cases
from benchmarks.gpu_model.kernels import CONTRACTIONS, MAKERS
from benchmarks.gpu_model.limits import describe_device, measure_limits
from benchmarks.gpu_model.timing import set_tf32, time_calls, warm_up

__all__ = ["main", "measure_case", "measured_rows"]

# Copies of an operation's tensors, taken in turns, are to be more than the caches of a GPU hold.
_CACHE_BYTES = 128 * 2**20
_MOST_COPIES = 32
_MEMORY_SHARE = 0.8
_KEPT_BYTES = 2 * 2**30


def measure_case(case: Case, device: torch.device) -> dict[str, Any]:
    """Measures an operation.

    Args:
        case: the operation.
        device: the device to run on.

    Returns:
        `call`, and seconds by precision: `secs` with inputs from memory, `cached_secs` with the
        inputs that the last call had, `host_secs` until the host has started it. Contractions on a
        GPU have the precisions "float32" and "tf32", all others only "float32". Or `error`.
    """
    if case.op_type not in MAKERS:
        return {"error": f"there is no call of PyTorch for {case.op_type}"}
    needed = _held_bytes(case)
    available = _MEMORY_SHARE * _free_bytes(device)
    if needed > available:
        return {"error": f"needs {needed / 1e9:.1f} GB of memory; {available / 1e9:.1f} are free"}
    copies = max(min(_MOST_COPIES, int(_CACHE_BYTES / needed) + 1, int(available / needed)), 1)
    try:
        made = [MAKERS[case.op_type](case, device) for _ in range(copies)]
        runs = [run for _, run in made]
        row: dict[str, Any] = {"call": made[0][0], "copies": copies}
        row |= {name: {} for name in ("secs", "cached_secs", "host_secs")}
        with_tf32 = device.type == "cuda" and case.kind in CONTRACTIONS
        for precision in ("float32", "tf32") if with_tf32 else ("float32",):
            set_tf32(precision == "tf32")
            secs, host_secs = time_calls(runs, device)
            cached_secs = time_calls(runs[:1], device)[0] if copies > 1 else secs
            row["secs"][precision] = secs
            row["cached_secs"][precision] = cached_secs
            row["host_secs"][precision] = host_secs
        return row
    # One operation that fails, whatever the reason, must not end all others.
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}


def _held_bytes(case: Case) -> float:
    """Bounds what the tensors of an operation and the work space of its library take."""
    elements = sum(math.prod(each.shape) for each in (*case.inputs, *case.outputs))
    return 2.0 * 4.0 * elements + 2**16


def _free_bytes(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    with open("/proc/meminfo") as file:
        line = next(line for line in file if line.startswith("MemAvailable"))
    return 1024.0 * float(line.split()[1])


def measured_rows(
    cases: tuple[Case, ...], device: torch.device, max_secs: float
) -> Iterator[dict[str, Any]]:
    """Measures limits of a device and then cases, in their order, until the time is up.

    Args:
        cases: the operations.
        device: the device to run on.
        max_secs: no measurement begins later.

    Yields:
        A row for each; the last one says how many were measured.
    """
    begin = time.monotonic()
    yield {"device": describe_device(device), "max_secs": max_secs}
    warm_up(device)
    yield from measure_limits(device)
    measured = failed = 0
    for case in cases:
        if time.monotonic() - begin >= max_secs:
            break
        row = measure_case(case, device)
        _free_memory(device, after_error="error" in row)
        measured, failed = measured + 1, failed + ("error" in row)
        yield {"case": case.key, **row}
    yield {
        "ended": "all" if measured == len(cases) else "time",
        "cases": len(cases),
        "measured": measured - failed,
        "failed": failed,
        "secs": time.monotonic() - begin,
        "device": describe_device(device),
    }


def _free_memory(device: torch.device, *, after_error: bool) -> None:
    """Gives memory back where the next case may need it; that takes a while, so not always."""
    if after_error:
        gc.collect()
    if device.type == "cuda" and (after_error or torch.cuda.memory_reserved() > _KEPT_BYTES):
        try:
            torch.cuda.empty_cache()
        except RuntimeError:
            # An error of the device that came late is not one of the next operation.
            return


def _write(rows: Iterator[dict[str, Any]], file: TextIO) -> None:
    last = time.monotonic()
    for row in rows:
        file.write(json.dumps(row) + "\n")
        file.flush()
        if "limit" in row or "ended" in row or time.monotonic() - last > 10.0:
            last = time.monotonic()
            print(json.dumps(row)[:200], flush=True)


def main() -> None:
    """Measures, and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=str(CASES_PATH))
    parser.add_argument("--max_secs", type=float, default=240.0)
    parser.add_argument("--out", default="measured.jsonl")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    cases = read_cases(args.cases)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.set_grad_enabled(False)
    path = pathlib.Path(args.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        _write(measured_rows(cases.cases, torch.device(args.device), args.max_secs), file)


if __name__ == "__main__":
    main()
