"""The step of a placement that fits only if activations wait on the CPU for their later readers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tf_placer.problem.accelerators import is_gpu
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.added_operations import AddedOperations, add_operations, find_shortest
from tf_placer.simulation.memory_profile import OUTPUT, MemoryLevels, holdings, memory_levels
from tf_placer.simulation.simulator import Simulator, StepTrace

__all__ = [
    "HostOffload",
    "Movable",
    "TensorMove",
    "find_offload",
    "move_tensors",
    "offload_to_host",
]

# The peak moves as tensors leave, so that it takes several rounds: between 40 and 80 to fit the
# branches of Inception-V3 into 60 % of their memory.
_MAX_ROUNDS = 100
# A tensor begins its way back this many times its transfer ahead of its reader.
_AHEAD = 2.0


@dataclasses.dataclass(frozen=True)
class HostOffload:
    """A step in which tensors wait on the CPU.

    Attributes:
        num_tensors: the number of tensors that are sent to the CPU and back.
        moved_bytes: their sizes together.
        step_secs: the simulated step time with their transfers, in seconds.
        unmoved_secs: the step time of the same placement if nothing moves, as if it fitted.
        moves: the tensors.
        assignment: the placement, in which nothing has moved yet: a device index per group.
    """

    num_tensors: int
    moved_bytes: int
    step_secs: float
    unmoved_secs: float
    moves: tuple[TensorMove, ...] = dataclasses.field(default=(), compare=False, repr=False)
    assignment: tuple[int, ...] = dataclasses.field(default=(), compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class TensorMove:
    """A tensor that is sent to the CPU and back.

    Attributes:
        tensor: the tensor.
        gates: the operations that wait until it has left. An asynchronous device is handed
            operations far ahead, and would allocate their memory before.
        trigger: the operation after which it begins its way back.
        readers: the operations that read it after that.
    """

    tensor: int
    gates: tuple[int, ...]
    trigger: int
    readers: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Movable:
    """The parts of a step that a graph lets move.

    Attributes:
        tensors: bool [num_tensors], the tensors that may wait on the CPU.
        triggers: bool [num_operations], the operations that may wait for them, or trigger their
            ways back.
    """

    tensors: np.ndarray
    triggers: np.ndarray


def find_offload(
    problem: PlacementProblem, placements: Iterable[np.ndarray], *, max_secs: float
) -> HostOffload | None:
    """Finds the shortest step of placements that fit if tensors wait on the CPU.

    See `find_shortest` for the arguments and the result.
    """
    return find_shortest(functools.partial(offload_to_host, problem), placements, max_secs=max_secs)


def offload_to_host(
    problem: PlacementProblem, placement: np.ndarray, movable: Movable | None = None
) -> HostOffload | None:
    """Sends tensors of GPUs that are over-full to the CPU, until a placement fits.

    At the peak of a device, the tensors leave whose next reader runs last. They come back before
    it. Variables and other memory for the whole step stay.

    Args:
        problem: the placement problem, on a machine with a CPU and GPUs.
        placement: int32 [num_groups], a legal placement.
        movable: what may move; None for everything.

    Returns:
        The step, in which nothing was moved if the placement fits by itself; None if it does not
        fit in this way.
    """
    hosts = [number for number, device in enumerate(problem.devices) if not is_gpu(device)]
    moved, placed = problem, np.asarray(placement, np.int32)
    unmoved_secs = float(Simulator(problem, memory=False).simulate(placed[None]).step_secs[0])
    if movable is None:
        movable = Movable(
            np.ones(problem.num_tensors, np.bool_), np.ones(problem.num_operations, np.bool_)
        )
    moves: dict[int, TensorMove] = {}
    left: dict[int, int] = {}
    for _ in range(_MAX_ROUNDS):
        trace = Simulator(moved, threads=1).trace(placed)
        room = np.array([device.memory_bytes for device in moved.devices])
        excess = trace.peak_bytes - room
        over = int(np.argmax(excess))
        if excess[over] <= 0:
            sizes = problem.tensor_bytes[[*moves]].sum()
            return HostOffload(
                num_tensors=len(moves),
                moved_bytes=int(sizes),
                step_secs=trace.step_secs,
                unmoved_secs=unmoved_secs,
                moves=tuple(moves.values()),
                assignment=tuple(np.asarray(placement).tolist()),
            )
        if not hosts or over in hosts:
            return None
        waiting = {tensor: moves[tensor].gates for tensor in moves}
        chosen = _choose_tensors(trace, over, hosts[0], int(excess[over]), movable, waiting)
        if not chosen.tensors and not chosen.gates:
            return None
        for number, (tensor, trigger, later) in enumerate(chosen.tensors):
            readers = tuple(moved.consumers[later].tolist())
            moves[tensor] = TensorMove(tensor, (), trigger, readers)
            left[tensor] = moved.num_operations + number
        if chosen.tensors:
            moved, placed = move_tensors(moved, placed, chosen.tensors, hosts[0])
        for tensor, gate in chosen.gates.items():
            gates = (*moves[tensor].gates, gate)
            moves[tensor] = dataclasses.replace(moves[tensor], gates=gates)
        if chosen.gates:
            waits = [(left[tensor], gate) for tensor, gate in chosen.gates.items()]
            edges = np.concatenate([moved.control_edges, waits]).astype(np.int32)
            moved = dataclasses.replace(moved, control_edges=edges)
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
        The problem with two operations and groups more for each tensor, one of which runs when it
        has left, and the other when it begins its way back; and the placement of it.
    """
    count, added = problem.num_operations, len(chosen)
    tensors = np.array([tensor for tensor, _, _ in chosen])
    left, back = count + np.arange(added), count + added + np.arange(added)
    secs = np.full([2 * added, problem.num_devices], np.inf)
    secs[:, host] = 0.0
    names = [problem.operation_names[problem.tensor_producers[tensor]] for tensor in tensors]
    control = [(trigger, int(last)) for (_, trigger, _), last in zip(chosen, back, strict=True)]
    extended = add_operations(
        problem,
        AddedOperations(
            names=[f"{name}/{part}" for part in ("to_host", "from_host") for name in names],
            types=["Identity"] * (2 * added),
            compute_secs=secs,
            temp_bytes=np.zeros(2 * added, np.int64),
            # Both have the tensor in the same memory.
            output_bytes=np.tile(problem.tensor_bytes[tensors], 2),
            reads=np.concatenate(
                [
                    np.stack([tensors, left], axis=1),
                    np.stack([problem.num_tensors + np.arange(added), back], axis=1),
                ]
            ),
            rerouted=np.array(
                [
                    (place, problem.num_tensors + added + number)
                    for number, (_, _, later) in enumerate(chosen)
                    for place in later.tolist()
                ]
            ),
            control_edges=np.array(control),
        ),
    )
    return extended, np.append(placement, np.full(2 * added, host)).astype(np.int32)


@dataclasses.dataclass(frozen=True, eq=False)
class _Choice:
    """The tensors that leave a device at its peak.

    Attributes:
        tensors: those that leave in addition; see `move_tensors`.
        gates: the operation that waits for each of these, and for those that were chosen before and
            have not left yet.
    """

    tensors: list[tuple[int, int, np.ndarray]]
    gates: dict[int, int]


def _choose_tensors(
    trace: StepTrace,
    device: int,
    host: int,
    excess_bytes: int,
    may_move: Movable,
    waiting: Mapping[int, Sequence[int]],
) -> _Choice:
    """Chooses the tensors that leave a device at its peak.

    Args:
        trace: the step.
        device: the device.
        host: the device index of the CPU.
        excess_bytes: the bytes to free.
        may_move: what may move.
        waiting: the gates of the tensors that were chosen before.
    """
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
    # Copies of earlier rounds follow the tensors of the problem.
    movable[len(may_move.tensors) :] = False
    movable[[*waiting]] = False
    movable[: len(may_move.tensors)] &= may_move.tensors
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
    can_trigger = np.zeros(problem.num_operations, np.bool_)
    can_trigger[: len(may_move.triggers)] = may_move.triggers
    after = np.flatnonzero(is_here & can_trigger & (instants >= peak))
    after = after[np.argsort(instants[after], kind="stable")]
    chosen: list[tuple[int, int, np.ndarray]] = []
    gates: dict[int, int] = {}
    queue = _GateQueue(levels, excess_bytes, instants, np.flatnonzero(is_here & can_trigger))
    # A tensor is there until its last early reader has run.
    lasts = instants[makers].copy()
    early = is_here[problem.consumers] & (reader_instants <= peak)
    np.maximum.at(lasts, tensors[early], reader_instants[early])
    here = held.at(peak)
    there = {*here.operations[here.kinds == OUTPUT].tolist()}
    for tensor in waiting if is_asynchronous else ():
        if int(makers[tensor]) in there and not busy[tensor]:
            gate = queue.find_gate(float(lasts[tensor]))
            if gate is not None and gate not in waiting[tensor]:
                gates[tensor] = gate
                queue.freed_bytes += int(problem.tensor_bytes[tensor])
    for tensor in candidates[np.argsort(-next_read[candidates], kind="stable")].tolist():
        if queue.freed_bytes >= excess_bytes:
            break
        size = int(problem.tensor_bytes[tensor])
        back_secs = link.latency_secs + size / link.bandwidth_bytes_per_sec
        reads = np.arange(*problem.consumer_start[tensor : tensor + 2])
        own = reads[later[reads]]
        before = after[instants[after] < reader_instants[own].min()]
        if not len(before):
            continue
        if is_asynchronous:
            gate = queue.find_gate(float(lasts[tensor]))
            if gate is None:
                continue
            gates[tensor] = gate
        soon = before[trace.end_secs[before] <= next_read[tensor] - _AHEAD * back_secs]
        # The step is delayed if the way back takes longer than there is time for.
        chosen.append((tensor, int(soon[-1] if len(soon) else before[0]), own))
        queue.freed_bytes += size
    return _Choice(chosen, gates)


class _GateQueue:
    """The operations that wait for tensors, in the order in which memory runs short.

    Attributes:
        freed_bytes: the bytes that leave before the next operation that is short.
    """

    def __init__(
        self, levels: MemoryLevels, excess_bytes: int, instants: np.ndarray, gates: np.ndarray
    ) -> None:
        """Computes the bytes that have to leave on the way to the peak.

        Args:
            levels: the memory of the device.
            excess_bytes: the bytes that have to leave at the peak.
            instants: float64 [num_operations]; see `Holdings`.
            gates: the operations of the device that may wait.
        """
        rise = levels.levels[: levels.peak + 1]
        excess = rise - (rise[-1] - excess_bytes)
        begin = int(np.flatnonzero(excess <= 0)[-1]) + 1 if (excess <= 0).any() else 0
        self._needed_bytes = np.maximum.accumulate(excess[begin:])
        self._short = levels.instants[begin : levels.peak + 1]
        order = np.argsort(instants[gates], kind="stable")
        self._gates = gates[order][instants[gates][order] <= self._short[-1]]
        self._instants = instants[self._gates]
        self.freed_bytes = 0

    def find_gate(self, last: float) -> int | None:
        """Finds the operation that waits for the next tensor; None if none can.

        Args:
            last: the instant until which the tensor is needed before it leaves.
        """
        number = int(np.searchsorted(self._needed_bytes, self.freed_bytes, side="right"))
        short = self._short[min(number, len(self._short) - 1)]
        place = int(np.searchsorted(self._instants, short, side="right")) - 1
        place = max(place, int(np.searchsorted(self._instants, last, side="right")))
        return int(self._gates[place]) if place < len(self._gates) else None
