"""The limits of a device, launches, copies and the largest products, and its description."""

from __future__ import annotations

import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.gpu_model.timing import set_tf32, time_calls

__all__ = ["describe_device", "measure_limits"]

_COPY_BYTES = (4, 4 * 2**10, 64 * 2**10, 2**20, 16 * 2**20, 256 * 2**20)
_PRODUCT_SIZE = {"cuda": 8192, "cpu": 1024}
_ROUND_TRIPS = 50
_SMI_FIELDS = (
    *("name", "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem"),
    *("power.draw", "power.limit", "temperature.gpu", "memory.total", "pstate"),
)


def describe_device(device: torch.device) -> dict[str, Any]:
    """Describes the device, the libraries and the clocks that it runs at now."""
    found: dict[str, Any] = {
        "type": device.type,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "host": platform.machine(),
    }
    if device.type != "cuda":
        return {**found, "name": platform.processor() or platform.machine()}
    properties = torch.cuda.get_device_properties(device)
    return {
        **found,
        "name": torch.cuda.get_device_name(device),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "nvidia_smi": _query_smi(),
    }


def _query_smi() -> dict[str, str]:
    command = ["nvidia-smi", f"--query-gpu={','.join(_SMI_FIELDS)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        values = done.stdout.splitlines()[0].split(",")
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        return {"error": str(error)}
    return dict(zip(_SMI_FIELDS, map(str.strip, values), strict=False))


def measure_limits(device: torch.device) -> Iterator[dict[str, Any]]:
    """Measures launches, copies and products, none of which is of a model.

    Yields:
        A row for each, with its name as `limit`; with an `error` where it failed.
    """
    for name, measure in _limits(device):
        try:
            row = {"limit": name, **measure()}
        except RuntimeError as error:  # Memory that is short is one of these.
            row = {"limit": name, "error": str(error)[:300]}
        yield row


def _limits(device: torch.device) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    is_cuda, host = device.type == "cuda", torch.device("cpu")
    yield "launch", partial(_launch, device)
    if is_cuda:
        yield "round trip", _round_trip
    for is_on in (False, True) if is_cuda else (False,):
        yield f"product, {'tf32' if is_on else 'float32'}", partial(_product, device, is_on)
    for size in _COPY_BYTES:
        yield f"copy on the device, {size} B", partial(_copy, device, device, size, False)
    for size in _COPY_BYTES if is_cuda else ():
        for memory in ("pageable", "pinned"):
            for way, ends in (("from", (host, device)), ("to", (device, host))):
                name = f"copy {way} {memory} host memory, {size} B"
                yield name, partial(_copy, *ends, size, memory == "pinned")


def _launch(device: torch.device) -> dict[str, Any]:
    """Times a kernel that does nearly nothing: what is left are launches."""
    value = torch.zeros(1, device=device)
    secs, host_secs = time_calls([lambda: value.add_(1.0)], device)
    return {"secs": secs, "host_secs": host_secs}


def _round_trip() -> dict[str, Any]:
    """Times a small kernel with nothing before it, until the host knows that it has ended."""
    value = torch.zeros(1, device="cuda")
    found = []
    for _ in range(_ROUND_TRIPS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        value.add_(1.0)
        torch.cuda.synchronize()
        found.append(time.perf_counter() - begin)
    return {"secs": statistics.median(found)}


def _product(device: torch.device, with_tf32: bool) -> dict[str, Any]:
    size = _PRODUCT_SIZE[device.type]
    set_tf32(with_tf32)
    a, b = (torch.rand(size, size, device=device) for _ in range(2))
    secs, _ = time_calls([lambda: torch.mm(a, b)], device)
    return {"secs": secs, "flops_per_sec": 2.0 * size**3 / secs}


def _copy(source: torch.device, target: torch.device, size: int, pinned: bool) -> dict[str, Any]:
    def make(device: torch.device) -> torch.Tensor:
        pin = pinned and device.type == "cpu"
        return torch.zeros(size, dtype=torch.uint8, device=device, pin_memory=pin)

    a, b = make(source), make(target)
    device = source if source.type == "cuda" else target
    secs, host_secs = time_calls([lambda: b.copy_(a, non_blocking=pinned)], device)
    return {"secs": secs, "host_secs": host_secs, "bytes_per_sec": size / secs}
