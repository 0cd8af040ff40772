"""The step of a placement that fits only if activations wait on the CPU for their later readers."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.accelerators import is_gpu
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.memory_profile import holdings, memory_levels
from tf_placer.simulation.simulator import Simulator, StepTrace

__all__ = ["HostOffload", "move_tensors", "offload_to_host"]

# The peak moves as tensors leave, so that it takes several rounds.
_MAX_ROUNDS = 40
# A tensor begins its way back this many times its transfer ahead of its reader.
_AHEAD = 2.0


@dataclasses.dataclass(frozen=True)
class HostOffload:
    """A step in which tensors wait on the CPU.

    Attributes:
        num_tensors: the number of tensors that are sent to the CPU and back.
        moved_bytes: their sizes together.
        step_secs: the simulated step time with their transfers, in seconds.
    """

    num_tensors: int
    moved_bytes: int
    step_secs: float


def offload_to_host(problem: PlacementProblem, placement: np.ndarray) -> HostOffload | None:
    """Sends tensors of GPUs that are over-full to the CPU, until a placement fits.

    At the peak of a device, the tensors leave whose next reader runs last. They come back before
    it. Variables and other memory for the whole step stay.

    Args:
        problem: the placement problem, on a machine with a CPU and GPUs.
        placement: int32 [num_groups], a legal placement.

    Returns:
        The step, in which nothing was moved if the placement fits by itself; None if it does not
        fit in this way.
    """
    hosts = [number for number, device in enumerate(problem.devices) if not is_gpu(device)]
    moved, placed = problem, np.asarray(placement, np.int32)
    num_tensors = moved_bytes = 0
    for _ in range(_MAX_ROUNDS):
        trace = Simulator(moved, threads=1).trace(placed)
        room = np.array([device.memory_bytes for device in moved.devices])
        excess = trace.peak_bytes - room
        over = int(np.argmax(excess))
        if excess[over] <= 0:
            return HostOffload(num_tensors, moved_bytes, trace.step_secs)
        if not hosts or over in hosts:
            return None
        chosen = _choose_tensors(trace, over, hosts[0], int(excess[over]))
        if not chosen:
            return None
        num_tensors += len(chosen)
        moved_bytes += sum(int(moved.tensor_bytes[tensor]) for tensor, _, _ in chosen)
        moved, placed = move_tensors(moved, placed, chosen, hosts[0])
    return None


def move_tensors(
    problem: PlacementProblem,
    placement: np.ndarray,
    chosen: list[tuple[int, int, np.ndarray]],
    host: int,
) -> tuple[PlacementProblem, np.ndarray]:
    """Adds operations on the CPU through which tensors reach their later readers.

    Args:
        problem: the problem.
        placement: int32 [num_groups].
        chosen: a tensor each; the operation after which it begins its way back; and its later
            reads, int [num_later_reads], indices into `PlacementProblem.consumers`.
        host: the device index of the CPU.

    Returns:
        The problem with an operation and a group more for each tensor, and the placement of it.
    """
    count, added = problem.num_operations, len(chosen)
    tensors = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
    consumers = problem.consumers.copy()
    for number, (_, _, later) in enumerate(chosen):
        tensors[later] = problem.num_tensors + number
    first_reads = np.array([tensor for tensor, _, _ in chosen])
    tensors = np.concatenate([tensors, first_reads])
    consumers = np.concatenate([consumers, count + np.arange(added)])
    order = np.argsort(tensors, kind="stable")
    reads = np.bincount(tensors, minlength=problem.num_tensors + added)
    secs = np.full([added, problem.num_devices], np.inf)
    secs[:, host] = 0.0
    names = [problem.operation_names[problem.tensor_producers[tensor]] for tensor in first_reads]
    types, shapes = problem.operation_types, problem.tensor_shapes
    extended = dataclasses.replace(
        problem,
        operation_names=(*problem.operation_names, *(f"{name}/on_host" for name in names)),
        operation_types=None if types is None else (*types, *["Identity"] * added),
        compute_secs=np.concatenate([problem.compute_secs, secs]),
        resident_bytes=np.append(problem.resident_bytes, np.zeros(added, np.int64)),
        temp_bytes=np.append(problem.temp_bytes, np.zeros(added, np.int64)),
        groups=np.append(problem.groups, problem.num_groups + np.arange(added)),
        coarse_groups=None,
        layers=None,
        tensor_producers=np.append(problem.tensor_producers, count + np.arange(added)),
        tensor_bytes=np.append(problem.tensor_bytes, problem.tensor_bytes[first_reads]),
        local_bytes=np.append(problem.local_bytes, problem.tensor_bytes[first_reads]),
        tensor_shapes=shapes and (*shapes, *(shapes[tensor] for tensor in first_reads)),
        consumer_start=np.append(0, np.cumsum(reads)),
        consumers=consumers[order],
        control_edges=np.concatenate(
            [
                problem.control_edges,
                [(trigger, count + number) for number, (_, trigger, _) in enumerate(chosen)],
            ]
        ),
    )
    return extended, np.append(placement, np.full(added, host)).astype(np.int32)


def _choose_tensors(
    trace: StepTrace, device: int, host: int, excess_bytes: int
) -> list[tuple[int, int, np.ndarray]]:
    """Chooses the tensors that leave a device at its peak; see `move_tensors`."""
    problem = trace.problem
    held = holdings(trace).on(device)
    levels = memory_levels(trace, device, held)
    peak = levels.instants[levels.peak]
    is_asynchronous = problem.devices[device].is_asynchronous
    instants = 2.0 * trace.moments if is_asynchronous else trace.start_secs
    tensors = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
    reader_instants = instants[problem.consumers]
    is_here = trace.operation_devices == device
    later = (reader_instants > peak) & is_here[problem.consumers]
    # A tensor that is read at the peak has to be there.
    busy = np.zeros(problem.num_tensors, np.bool_)
    busy[tensors[(reader_instants == peak) & is_here[problem.consumers]]] = True
    makers = problem.tensor_producers
    movable = is_here[makers] & (instants[makers] < peak) & ~busy
    movable &= (problem.local_bytes == problem.tensor_bytes) & (problem.tensor_bytes > 0)
    next_read = np.full(problem.num_tensors, np.inf)
    np.minimum.at(next_read, tensors[later], trace.start_secs[problem.consumers[later]])
    candidates = np.flatnonzero(movable & np.isfinite(next_read))
    link = next(
        link
        for link in problem.links
        if link.source == problem.devices[host].name
        and link.destination == problem.devices[device].name
    )
    # Operations that follow the peak; the first of them is the one that runs at it.
    after = np.flatnonzero(is_here & (instants >= peak))
    after = after[np.argsort(instants[after], kind="stable")]
    chosen: list[tuple[int, int, np.ndarray]] = []
    freed_bytes = 0
    for tensor in candidates[np.argsort(-next_read[candidates], kind="stable")].tolist():
        size = int(problem.tensor_bytes[tensor])
        back_secs = link.latency_secs + size / link.bandwidth_bytes_per_sec
        reads = np.arange(*problem.consumer_start[tensor : tensor + 2])
        own = reads[later[reads]]
        before = after[instants[after] < reader_instants[own].min()]
        early = before[trace.end_secs[before] <= next_read[tensor] - _AHEAD * back_secs]
        # The step is delayed if the way back takes longer than there is time for.
        chosen.append((tensor, int(early[-1] if len(early) else before[0]), own))
        freed_bytes += size
        if freed_bytes >= excess_bytes:
            break
    return chosen
