"""The time that calls take on a device, and the time that starting them takes the host."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

__all__ = ["set_tf32", "time_calls", "warm_up"]

_TARGET_SECS = 0.005
_ROUNDS = 3
# More calls than this do not fit into the queue of a stream before the host has to wait.
_MOST_CALLS = 200
# About the clock of a GPU: it converts the time for which the device waits into cycles.
_GPU_CLOCK_HERTZ = 2.0e9
_WARM_UP_SECS = 1.0


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


def time_calls(runs: Sequence[Callable[[], object]], device: torch.device) -> tuple[float, float]:
    """Times calls that are started one after the other.

    Args:
        runs: calls that do the same with tensors of their own, taken in turns: so the caches of the
            device do not hold what the next one reads.
        device: the device that they run on.

    Returns:
        The seconds of a call on the device, where calls wait in its queue, and the seconds until
        the host has started it: the medians of several rounds.

    Raises:
        RuntimeError: a call fails.
    """
    for run in runs:  # The first call of a shape makes the library choose an algorithm.
        run()
    is_cuda = device.type == "cuda"
    if is_cuda:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for run in runs:
        run()
    host_secs = (time.perf_counter() - begin) / len(runs)
    if is_cuda:
        torch.cuda.synchronize()
    once = (time.perf_counter() - begin) / len(runs)
    calls = min(max(int(_TARGET_SECS / max(once, 1e-9)), len(runs)), max(_MOST_CALLS, len(runs)))
    order = [runs[number % len(runs)] for number in range(calls)]
    rounds = [
        _round_on_cuda(order, host_secs) if is_cuda else _round_on_host(order)
        for _ in range(_ROUNDS)
    ]
    secs, host = (statistics.median(each) for each in zip(*rounds, strict=True))
    return secs, host


def _round_on_host(order: Sequence[Callable[[], object]]) -> tuple[float, float]:
    begin = time.perf_counter()
    for run in order:
        run()
    secs = (time.perf_counter() - begin) / len(order)
    return secs, secs


def _round_on_cuda(order: Sequence[Callable[[], object]], host_secs: float) -> tuple[float, float]:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    # The device waits until the host has filled its queue, so that it never waits for the host.
    waiting_secs = min(1.5 * host_secs * len(order) + 1e-4, 0.05)
    torch.cuda._sleep(int(_GPU_CLOCK_HERTZ * waiting_secs))
    start.record()
    begin = time.perf_counter()
    for run in order:
        run()
    host = (time.perf_counter() - begin) / len(order)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / len(order), host
