"""Iteration counts of loops, as far as they follow from constants and shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from graph_passes.function_body import Body
from graph_passes.op_graph import OpGraph
from graph_passes.small_values import SmallValues

__all__ = ["FrameLoops", "FunctionalLoop"]

_MERGES, _ENTERS = ("Merge", "RefMerge"), ("Enter", "RefEnter")
_SWITCHES, _EXITS = ("Switch", "RefSwitch"), ("Exit", "RefExit")
_BACK = ("NextIteration", "RefNextIteration")
_MIRRORED = {
    "Less": "Greater",
    "LessEqual": "GreaterEqual",
    "Greater": "Less",
    "GreaterEqual": "LessEqual",
}


@dataclasses.dataclass(frozen=True)
class _Counter:
    """A loop variable to which every iteration adds the same number."""

    start: int
    step: int

    def count_iterations(self, comparison: str, limit: int) -> int | None:
        """Counts the iterations while the comparison with a limit holds; None if infinite."""
        distance, step = limit - self.start, self.step
        if comparison.startswith("Greater"):
            distance, step = -distance, -step
        if step <= 0:
            return None if distance > 0 else 0
        last = distance if comparison.endswith("Equal") else distance - 1
        return max(last // step + 1, 0)


class _Loop:
    """A loop whose iterations are counted from its condition."""

    #: The values from which the condition is computed.
    condition_values: SmallValues

    def find_counter(self, tensor: int) -> _Counter | None:
        """Finds the counter behind a tensor of the condition; None if it is no counter."""
        raise NotImplementedError

    def find_max_iterations(self, condition: int) -> int | None:
        """Computes an upper bound of the iterations from a tensor of the condition."""
        values = self.condition_values
        graph = values.graph
        condition = values.find_origin(condition)
        i = int(graph.tensor_producer[condition])
        op_type, inputs = graph.type_of(i), graph.input_tensors[i]
        if op_type == "LogicalAnd":
            found = [self.find_max_iterations(each) for each in inputs]
            return min((each for each in found if each is not None), default=None)
        if op_type not in _MIRRORED:
            return None
        for comparison, (one, other) in (
            (op_type, inputs),
            (_MIRRORED[op_type], inputs[::-1]),
        ):
            counter, limit = self.find_counter(one), values.value(other)
            if counter is not None and limit is not None and limit.size == 1:
                return counter.count_iterations(comparison, int(limit.reshape(())))
        return None


def _find_increment(values: SmallValues, variable: int, result: int) -> int | None:
    """Finds the increment of a loop variable: 0 if it is invariant, None if unknown."""
    result = values.find_origin(result)
    if result == variable:
        return 0
    graph = values.graph
    i = int(graph.tensor_producer[result])
    op_type, inputs = graph.type_of(i), graph.input_tensors[i]
    if op_type not in ("Add", "AddV2", "Sub"):
        return None
    for one, other in (inputs, inputs[::-1]) if op_type != "Sub" else (inputs,):
        step = values.value(other)
        if values.find_origin(one) == variable and step is not None and step.size == 1:
            return -int(step.reshape(())) if op_type == "Sub" else int(step.reshape(()))
    return None


class _LoopValues(SmallValues):
    """Constant folding that also evaluates the results of v1 loops."""

    def __init__(self, loops: FrameLoops) -> None:
        super().__init__(loops.graph)
        self._loops = loops

    def find_origin(self, tensor: int) -> int:
        """Follows identities back, from the body of a loop to the loop variable."""
        while True:
            found = super().find_origin(tensor)
            switch = int(self.graph.tensor_producer[found])
            if switch not in self._loops.merge_of_switch:
                return found
            tensor = int(self.graph.output_start[self._loops.merge_of_switch[switch]])
            if not self._loops.is_body_side(found):
                return found
            return tensor

    def _compute(self, tensor: int, depth: int) -> object:
        i = int(self.graph.tensor_producer[tensor])
        op_type = self.graph.type_of(i)
        if op_type in _EXITS:
            return self._loops.find_last_value(self.graph.input_tensors[i][0])
        if op_type in _MERGES:
            return self._loops.find_constant(i)
        if op_type == "StackPopV2":
            # Gradients of nested loops pop the iteration count of the inner loop from a stack.
            stack = self.find_origin(self.graph.input_tensors[i][0])
            pushed = self._loops.pushed.get(stack)
            return None if pushed is None else self.value(pushed, depth + 1)
        return super()._compute(tensor, depth)


class FrameLoops(_Loop):
    """The v1 loops of a graph: `Enter`, `Merge`, `Switch`, `NextIteration`, `Exit`, `LoopCond`."""

    def __init__(self, graph: OpGraph) -> None:
        """Finds the loops of a graph."""
        self.graph = graph
        #: The merge of the loop variable of each switch of a loop.
        self.merge_of_switch: dict[int, int] = {}
        self._condition_of: dict[str, int] = {}
        self._iterations_by_frame: dict[str, int | None] = {}
        self._entering: dict[int, int] = {}
        self._back: dict[int, int] = {}
        for i in np.flatnonzero(graph.has_type(_MERGES)).tolist():
            for tensor in graph.input_tensors[i]:
                kind = graph.type_of(int(graph.tensor_producer[tensor]))
                if kind in _BACK:
                    self._back[i] = tensor
                elif kind in _ENTERS:
                    self._entering[i] = tensor
        for i in np.flatnonzero(graph.has_type(_SWITCHES)).tolist():
            data, predicate = graph.input_tensors[i][:2]
            merge, condition = (int(graph.tensor_producer[t]) for t in (data, predicate))
            if merge in self._back and graph.type_of(condition) == "LoopCond":
                self.merge_of_switch[i] = merge
                self._condition_of[self._find_frame(merge)] = graph.input_tensors[condition][0]
        self.condition_values = _LoopValues(self)
        #: The tensor that is pushed on each stack.
        self.pushed: dict[int, int] = {}
        for i in np.flatnonzero(graph.has_type(["StackPushV2"])).tolist():
            stack, pushed = graph.input_tensors[i][:2]
            self.pushed[self.condition_values.find_origin(stack)] = pushed

    def _find_frame(self, merge: int) -> str:
        if merge not in self._entering:
            return ""
        enter = int(self.graph.tensor_producer[self._entering[merge]])
        return self.graph.graph_def.node[enter].attr["frame_name"].s.decode(errors="replace")

    def is_body_side(self, tensor: int) -> bool:
        """Returns whether an output of a switch leads into the body of the loop."""
        switch = int(self.graph.tensor_producer[tensor])
        return tensor - int(self.graph.output_start[switch]) == 1

    def count_runs(self) -> tuple[np.ndarray, list[str]]:
        """Computes how often each operation runs in a step, given all enclosing loops.

        Returns:
            float64 [num_operations], 1 for operations outside of loops; and the names of the frames
            with an unknown number of iterations, which count as one.
        """
        graph = self.graph
        repeats = np.ones(graph.num_operations)
        if not self._condition_of:
            return repeats, []
        frames = self._find_frames()
        unknown: dict[str, None] = {}
        for i in np.flatnonzero(graph.needed).tolist():
            for frame in frames[i]:
                iterations = self.count_iterations(frame)
                if iterations is None:
                    unknown[frame] = None
                else:
                    repeats[i] *= iterations
        return repeats, list(unknown)

    def _find_frames(self) -> list[tuple[str, ...]]:
        """Lists the enclosing frames of each operation, from the outermost."""
        graph = self.graph
        frames: list[tuple[str, ...]] = [() for _ in graph.names]
        control: dict[int, list[int]] = {}
        for before, after in graph.control_edges.tolist():
            control.setdefault(after, []).append(before)
        for i in graph.order.tolist():
            inside: tuple[str, ...] = ()
            for parent in (*graph.producers[i], *control.get(i, ())):
                of_parent = frames[parent]
                if graph.type_of(parent) in _EXITS:
                    of_parent = of_parent[:-1]
                if len(of_parent) > len(inside):
                    inside = of_parent
            if graph.type_of(i) in _ENTERS:
                name = graph.graph_def.node[i].attr["frame_name"].s.decode(errors="replace")
                inside = (*inside, name)
            frames[i] = inside
        return frames

    def count_iterations(self, frame: str) -> int | None:
        """Computes an upper bound of the iterations of a frame; None if unknown."""
        if frame not in self._iterations_by_frame:
            self._iterations_by_frame[frame] = None
            condition = self._condition_of.get(frame)
            self._iterations_by_frame[frame] = (
                None if condition is None else self.find_max_iterations(condition)
            )
        return self._iterations_by_frame[frame]

    def find_counter(self, tensor: int) -> _Counter | None:
        """Finds the counter behind a tensor of the condition; None if it is no counter."""
        merge = int(self.graph.tensor_producer[self.condition_values.find_origin(tensor)])
        return self._find_counter(merge)

    def _find_counter(self, merge: int) -> _Counter | None:
        if merge not in self._back or merge not in self._entering:
            return None
        back = int(self.graph.tensor_producer[self._back[merge]])
        variable = int(self.graph.output_start[merge])
        values = self.condition_values
        step = _find_increment(values, variable, self.graph.input_tensors[back][0])
        start = values.value(self._entering[merge])
        if step is None or start is None or start.size != 1:
            return None
        return _Counter(int(start.reshape(())), step)

    def find_constant(self, merge: int) -> int | None:
        """Finds the value of a loop-invariant variable; None for other variables."""
        counter = self._find_counter(merge)
        return counter.start if counter is not None and counter.step == 0 else None

    def find_last_value(self, switched: int) -> int | None:
        """Computes the value of a loop variable after the loop; None if unknown.

        Args:
            switched: the tensor that leaves the loop.
        """
        merge = self.merge_of_switch.get(int(self.graph.tensor_producer[switched]))
        if merge is None:
            return None
        counter, iterations = (
            self._find_counter(merge),
            self.count_iterations(self._find_frame(merge)),
        )
        if counter is None or iterations is None:
            return None
        return counter.start + iterations * counter.step


class FunctionalLoop(_Loop):
    """A `While` operation, whose condition and body are functions."""

    def __init__(self, inputs: Sequence[np.ndarray | None], condition: Body, body: Body) -> None:
        """Analyzes a loop.

        Args:
            inputs: the initial values of the loop variables, as far as known.
            condition: the function that the loop runs before each iteration.
            body: the function that the loop runs in each iteration.
        """
        self._number = {tensor: number for number, tensor in enumerate(condition.arguments)}
        values = SmallValues(body.graph)
        self._counters: list[_Counter | None] = []
        for start, variable, result in zip(inputs, body.arguments, body.results, strict=True):
            step = _find_increment(values, variable, result)
            if step is None or start is None or start.size != 1:
                self._counters.append(None)
            else:
                self._counters.append(_Counter(int(start.reshape(())), step))
        given = {
            tensor: np.array(counter.start)
            for tensor, counter in zip(condition.arguments, self._counters, strict=True)
            if counter is not None and counter.step == 0
        }
        self.condition_values = SmallValues(condition.graph, given)
        #: An upper bound of the iterations; None if unknown.
        self.num_iterations = self.find_max_iterations(condition.results[0])

    def find_counter(self, tensor: int) -> _Counter | None:
        """Finds the counter behind a tensor of the condition; None if it is no counter."""
        number = self._number.get(self.condition_values.find_origin(tensor))
        return None if number is None else self._counters[number]

    def find_last_value(self, number: int) -> int | None:
        """Computes the value of a loop variable after the loop; None if unknown."""
        counter = self._counters[number]
        if counter is None or (self.num_iterations is None and counter.step):
            return None
        return counter.start + counter.step * (self.num_iterations or 0)
