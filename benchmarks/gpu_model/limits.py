"""The limits of a device, launches, copies and the largest products, and its description."""

from __future__ import annotations

import functools
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.gpu_model.timing import time_calls

__all__ = ["describe_device", "measure_limits", "set_tf32", "warm_up"]

_COPY_BYTES = (4, 4 * 2**10, 64 * 2**10, 2**20, 16 * 2**20, 256 * 2**20)
_PRODUCT_SIZE = {"cuda": 8192, "cpu": 1024}
_ROUND_TRIPS = 50
_WARM_UP_SECS = 1.0
_SMI_FIELDS = (
    *("name", "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem"),
    *("power.draw", "power.limit", "temperature.gpu", "memory.total", "pstate"),
)


def set_tf32(is_on: bool) -> None:
    """Lets matrix products and convolutions of float32 use TF32, or forbids it."""
    torch.backends.cuda.matmul.allow_tf32 = is_on
    torch.backends.cudnn.allow_tf32 = is_on


def warm_up(device: torch.device) -> None:
    """Keeps a GPU busy until it has left the low clocks of an idle one."""
    if device.type != "cuda":
        return
    a = torch.rand(4096, 4096, device=device)
    begin = time.monotonic()
    while time.monotonic() - begin < _WARM_UP_SECS:
        torch.mm(a, a)
        torch.cuda.synchronize()


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
        return {**found, "name": _processor_name()}
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


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(
                line.split(":")[1].strip() for line in file if line.startswith("model name")
            )
    except (OSError, StopIteration, IndexError):
        return platform.processor()


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
    yield "launch", functools.partial(_launch, device)
    if device.type == "cuda":
        yield "round trip", _round_trip
    for is_on in (False, True) if device.type == "cuda" else (False,):
        yield (
            f"product, {'tf32' if is_on else 'float32'}",
            functools.partial(_product, device, is_on),
        )
    for size in _COPY_BYTES:
        yield f"copy on the device, {size} B", functools.partial(_copy, device, device, size, False)
    if device.type != "cuda":
        return
    host = torch.device("cpu")
    for size in _COPY_BYTES:
        for is_pinned in (False, True):
            memory = "pinned" if is_pinned else "pageable"
            yield (
                f"copy from {memory} host memory, {size} B",
                functools.partial(_copy, host, device, size, is_pinned),
            )
            yield (
                f"copy to {memory} host memory, {size} B",
                functools.partial(_copy, device, host, size, is_pinned),
            )


def _launch(device: torch.device) -> dict[str, Any]:
    """Times a kernel that does nearly nothing: what is left are launches."""
    value = torch.zeros(1, device=device)
    times = time_calls([lambda: value.add_(1.0)], device)
    return {"secs": times.secs, "host_secs": times.host_secs}


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
    times = time_calls([lambda: torch.mm(a, b)], device)
    return {"secs": times.secs, "flops_per_sec": 2.0 * size**3 / times.secs}


def _copy(source: torch.device, target: torch.device, size: int, pinned: bool) -> dict[str, Any]:
    def make(device: torch.device) -> torch.Tensor:
        pin = pinned and device.type == "cpu"
        return torch.zeros(size, dtype=torch.uint8, device=device, pin_memory=pin)

    a, b = make(source), make(target)
    device = source if source.type == "cuda" else target
    times = time_calls([lambda: b.copy_(a, non_blocking=pinned)], device)
    return {"secs": times.secs, "host_secs": times.host_secs, "bytes_per_sec": size / times.secs}
