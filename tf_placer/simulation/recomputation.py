"""The step of a placement that fits only if activations are computed again for later readers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable

import numpy as np

from tf_placer.problem.accelerators import is_gpu
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.added_operations import AddedOperations, add_operations, find_shortest
from tf_placer.simulation.memory_profile import holdings, memory_levels
from tf_placer.simulation.simulator import Simulator, StepTrace
from tf_placer.text.units import format_step

__all__ = ["Recomputation", "find_recomputation", "recompute_tensors"]

# The peak moves as tensors are freed earlier, so that it takes several rounds.
_MAX_ROUNDS = 40
# A tensor of more operations is kept: its inputs would be there again for as long.
_MAX_OPERATIONS_PER_TENSOR = 16
# Types that do not compute the same a second time, or do not only compute.
_NOT_REPEATABLE = (
    *("Random", "Multinomial", "Dropout", "Variable", "Assign", "Apply", "Scatter", "Queue"),
    *("Iterator", "Dataset", "Table", "Placeholder", "Switch", "Merge", "Enter", "Exit"),
    *("NextIteration", "TensorList", "TensorArray", "Stack", "While", "If", "Case", "Call"),
    *("Send", "Recv", "Reader", "File", "Print", "Assert", "PyFunc", "Summary"),
)


@dataclasses.dataclass(frozen=True)
class Recomputation:
    """A step in which operations run a second time, so that their outputs need not be kept.

    Attributes:
        num_operations: the number of operations that run again.
        step_secs: the simulated step time with them, in seconds.
        unlimited_secs: the step time of the same placement if memory had no limit.
    """

    num_operations: int
    step_secs: float
    unlimited_secs: float

    def describe(self) -> str:
        """Describes the step as a clause."""
        longer = max(0.0, self.step_secs / max(self.unlimited_secs, 1e-300) - 1.0)
        operations = f"{self.num_operations} operation{'s' * (self.num_operations != 1)}"
        return (
            f"fits with recomputation of {operations}: {format_step(self.step_secs)} a step, "
            f"{longer:.1%} slower than with enough memory (an estimate)"
        )


def find_recomputation(
    problem: PlacementProblem, placements: Iterable[np.ndarray], *, max_secs: float
) -> Recomputation | None:
    """Finds the shortest step of placements that fit with recomputation.

    See `find_shortest` for the arguments and the result.
    """
    change = functools.partial(recompute_tensors, problem)
    return find_shortest(change, placements, max_secs=max_secs)


def recompute_tensors(problem: PlacementProblem, placement: np.ndarray) -> Recomputation | None:
    """Frees tensors of GPUs that are over-full after their last early reader.

    At the peak of a device, those are freed that take the least time for their bytes to compute
    again from tensors that are kept anyway. They are computed right before their next reader.
    Operations that draw random numbers, have state or are in control flow run once.

    Args:
        problem: the placement problem, with the types of its operations.
        placement: int32 [num_groups], a legal placement.

    Returns:
        The step, in which nothing runs again if the placement fits by itself; None if it does not
        fit in this way, or the types are unknown.

    References:
        Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016. The choice by time for
        bytes is ours.
    """
    if problem.operation_types is None:
        return None
    changed, placed = problem, np.asarray(placement, np.int32)
    unlimited_secs = float(Simulator(problem, memory=False).simulate(placed[None]).step_secs[0])
    num_operations = 0
    for _ in range(_MAX_ROUNDS):
        trace = Simulator(changed, threads=1).trace(placed)
        excess = trace.peak_bytes - [device.memory_bytes for device in changed.devices]
        over = int(np.argmax(excess))
        if excess[over] <= 0:
            return Recomputation(num_operations, trace.step_secs, unlimited_secs)
        if not is_gpu(changed.devices[over]):
            return None
        added = _Chooser(trace, over).choose(int(excess[over]))
        if added is None:
            return None
        num_operations += len(added.names)
        changed = add_operations(changed, added)
        placed = np.append(placed, np.full(len(added.names), over)).astype(np.int32)
    return None


class _Chooser:
    """Chooses the tensors of a device that are freed at its peak, and their operations."""

    def __init__(self, trace: StepTrace, device: int) -> None:
        problem = self._problem = trace.problem
        self._trace, self._device = trace, device
        levels = memory_levels(trace, device, holdings(trace).on(device))
        self._peak = levels.instants[levels.peak]
        is_asynchronous = problem.devices[device].is_asynchronous
        self._instants = 2.0 * trace.moments if is_asynchronous else trace.start_secs
        self._is_here = trace.operation_devices == device
        types = problem.operation_types or ()
        repeatable = [not any(part in name for part in _NOT_REPEATABLE) for name in types]
        self._may_repeat = self._is_here & np.array(repeatable, np.bool_)
        self._may_repeat &= problem.resident_bytes == 0
        counts = np.bincount(problem.tensor_producers, minlength=problem.num_operations)
        # Each added operation has one output.
        self._may_repeat &= counts == 1
        self._tensors = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
        by_consumer = np.argsort(problem.consumers, kind="stable")
        self._inputs = self._tensors[by_consumer]
        self._input_start = np.searchsorted(
            problem.consumers[by_consumer], np.arange(problem.num_operations + 1)
        )
        reads_here = self._is_here[problem.consumers]
        self._last_use = np.full(problem.num_tensors, -np.inf)
        np.maximum.at(
            self._last_use,
            self._tensors[reads_here],
            self._instants[problem.consumers[reads_here]],
        )

    def choose(self, excess_bytes: int) -> AddedOperations | None:
        """Chooses operations to run again, until enough is freed; None if there are none."""
        problem, instants = self._problem, self._instants
        is_later = self._is_here[problem.consumers] & (instants[problem.consumers] > self._peak)
        busy = np.zeros(problem.num_tensors, np.bool_)
        busy[self._tensors[instants[problem.consumers] == self._peak]] = True
        makers = problem.tensor_producers
        candidates = self._may_repeat[makers] & (instants[makers] < self._peak) & ~busy
        candidates &= (problem.local_bytes == problem.tensor_bytes) & (problem.tensor_bytes > 0)
        next_read = np.full(problem.num_tensors, np.inf)
        np.minimum.at(next_read, self._tensors[is_later], instants[problem.consumers[is_later]])
        candidates &= np.isfinite(next_read)
        ranked = []
        for tensor in np.flatnonzero(candidates).tolist():
            operations = self._list_operations(tensor, float(next_read[tensor]))
            if operations is not None:
                secs = float(problem.compute_secs[operations, self._device].sum())
                ranked.append((secs / problem.tensor_bytes[tensor], tensor, operations))
        ranked.sort(key=lambda each: each[0])
        chosen: list[tuple[int, list[int], np.ndarray]] = []
        freed_bytes = 0
        for _, tensor, operations in ranked:
            if freed_bytes >= excess_bytes:
                break
            reads = np.arange(*problem.consumer_start[tensor : tensor + 2])
            chosen.append((tensor, operations, reads[is_later[reads]]))
            freed_bytes += int(problem.tensor_bytes[tensor])
        return self._build(chosen, next_read) if chosen else None

    def _list_operations(self, tensor: int, until: float) -> list[int] | None:
        """Lists the operations that compute a tensor again, from what is there at an instant.

        Returns:
            Their numbers, in an order in which they can run; None if a needed input is gone and
            cannot be computed again, or they are too many.
        """
        problem = self._problem
        found: list[int] = []
        stack = [int(problem.tensor_producers[tensor])]
        while stack:
            operation = stack.pop()
            if operation in found:
                continue
            if not self._may_repeat[operation] or len(found) >= _MAX_OPERATIONS_PER_TENSOR:
                return None
            found.append(operation)
            for source in self._list_inputs(operation):
                if not self._is_kept(source, until):
                    stack.append(int(problem.tensor_producers[source]))
        # The operations that ran first run first again.
        return sorted(found, key=lambda each: (self._instants[each], each))

    def _is_kept(self, tensor: int, until: float) -> bool:
        """Tells whether a tensor is there at an instant, in memory of its own or of another."""
        problem = self._problem
        seen: set[int] = set()
        stack = [tensor]
        while stack:
            each = stack.pop()
            maker = int(problem.tensor_producers[each])
            if self._last_use[each] >= until or problem.resident_bytes[maker]:
                return True
            # A tensor without memory shares that of an input of its producer.
            if not problem.local_bytes[each] and each not in seen:
                seen.add(each)
                stack += self._list_inputs(maker)
        return False

    def _list_inputs(self, operation: int) -> list[int]:
        inputs = self._inputs[self._input_start[operation] : self._input_start[operation + 1]]
        return [int(tensor) for tensor in inputs]

    def _build(
        self, chosen: list[tuple[int, list[int], np.ndarray]], next_read: np.ndarray
    ) -> AddedOperations:
        problem = self._problem
        output_of = np.full(problem.num_operations, -1)
        output_of[problem.tensor_producers] = np.arange(problem.num_tensors)
        sources: list[int] = []
        reads: list[tuple[int, int]] = []
        rerouted: list[tuple[int, int]] = []
        control: list[tuple[int, int]] = []
        here = np.flatnonzero(self._is_here)
        here = here[np.argsort(self._instants[here], kind="stable")]
        for tensor, operations, later in chosen:
            first = problem.num_operations + len(sources)
            number = {operation: first + k for k, operation in enumerate(operations)}
            tensor_of = {
                int(output_of[each]): problem.num_tensors + len(sources) + k
                for k, each in enumerate(operations)
            }
            # They run right before the next reader.
            at = np.searchsorted(self._instants[here], next_read[tensor], side="left")
            trigger = int(here[at - 1])
            for operation in operations:
                control.append((trigger, number[operation]))
                reads += [
                    (tensor_of.get(source, source), number[operation])
                    for source in self._list_inputs(operation)
                ]
            rerouted += [(place, tensor_of[tensor]) for place in later.tolist()]
            sources += operations
        assert problem.operation_types is not None
        secs = np.full([len(sources), problem.num_devices], np.inf)
        secs[:, self._device] = problem.compute_secs[sources, self._device]
        return AddedOperations(
            names=[f"{problem.operation_names[each]}/again" for each in sources],
            types=[problem.operation_types[each] for each in sources],
            compute_secs=secs,
            temp_bytes=problem.temp_bytes[sources],
            output_bytes=problem.tensor_bytes[output_of[sources]],
            reads=np.array(reads),
            rerouted=np.array(rerouted),
            control_edges=np.array(control),
        )
