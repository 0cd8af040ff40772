"""A graph inside the worker: devices on, session open, steps run, session closed."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_placer.environments.initializer_order import initializer_order
from tf_placer.environments.queue_threads import QueueThreads, wait_until_filled
from tf_placer.environments.restored_variables import assignments_of
from tf_placer.environments.step_stats import summarize
from tf_placer.environments.variable_state import find_assigned_variable, variable_assignments
from tf_placer.inputs.iterator_handles import find_fed_iterators
from tf_placer.inputs.step import QueueRunner

__all__ = ["LoadedGraph", "OpenSession", "SessionFailed"]

_PLACING = "placing the operations"
_OPENING = "opening the session"
_INITIALIZING = "the initializers"
_FILLING = "filling the queues"
_TIMED_ALONE = 2
# Rounds of timed operations that say something, beside those that do not count.
_LEAST_ROUNDS = 3
# Errors that the values of variables or the position of an iterator can cause.
_ERRORS_OF_STATE = (
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.OutOfRangeError,
)


class SessionFailed(Exception):
    """TensorFlow raised something.

    Attributes:
        error_type: name of the exception's class, "InvalidArgumentError".
        message: what it said.
        stage: what was being done.
        steps_done: how many steps ran before it.
    """

    def __init__(self, error: Exception, stage: str, steps_done: int) -> None:
        # An OpError's own message lacks what str() adds to it: the line that made the session.
        self.message: str = getattr(error, "message", None) or str(error)
        super().__init__(self.message)
        self.error_type = type(error).__name__
        self.stage = stage
        self.steps_done = steps_done


class OpenSession:
    """A session that has run the initializers.

    Attributes:
        session: the session; another one after an input that queues took from has ended.
        threads: what fills the queues of the session, if anything does.
        feeds: what a step is fed.
        stage: what was done last.
        steps_done: how many steps ran.
    """

    def __init__(
        self,
        make_session: Callable[[], tf.compat.v1.Session],
        fetches: Sequence[Any],
        feeds: Mapping[tf.Tensor, np.ndarray],
        handles: Mapping[tf.Tensor, tf.Tensor],
        initialize: Callable[[tf.compat.v1.Session], None],
        fill_queues: Callable[[tf.compat.v1.Session], QueueThreads] | None,
        report_stage: Callable[[str], None],
    ) -> None:
        """Opens nothing yet.

        Args:
            make_session: makes one.
            fetches: what a step runs.
            feeds: what a step is fed.
            handles: of these what a session itself has the values for, and where.
            initialize: runs all initializers in a session.
            fill_queues: starts the threads that fill the queues of a session behind that; None if
                there are none.
            report_stage: called with what comes next.
        """
        self.steps_done = 0
        self.stage = _OPENING
        self.is_as_initialized = False
        self.threads: QueueThreads | None = None
        self._make_session = make_session
        self._fetches = fetches
        self.feeds = dict(feeds)
        self._handles = handles
        self._initialize = initialize
        self._fill_queues = fill_queues
        self._report_stage = report_stage
        self._closing = contextlib.ExitStack()

    def open(self) -> None:
        """Makes the session."""
        self.session = self._make_session()
        self._closing.callback(_close, self.session)
        if self._handles:
            values = self.session.run(list(self._handles.values()))
            self.feeds.update(zip(self._handles, values, strict=True))
        run_step = self.session.make_callable(self._fetches, [*self.feeds] or None)
        self._run_step = functools.partial(run_step, *self.feeds.values())

    def close(self) -> None:
        """Ends the threads and closes the session."""
        self.threads = None
        self._closing.close()

    def cancel(self) -> None:
        """Breaks off, from another thread, whatever the session runs, and all that follows."""
        if hasattr(self, "session"):
            _close(self.session)

    def enter(self, stage: str) -> None:
        """Says what comes next."""
        self.stage = stage
        self._report_stage(stage)

    def step(self) -> tuple[float, list[Any]]:
        """Runs a step.

        Its input may have come to its end, or training on one batch may have led to values that an
        assertion of the graph forbids. So a step that fails is run once more from the initial
        state, unless it began there.

        Returns:
            Seconds that it took and what was fetched, None for operations.
        """
        try:
            return self._time_step()
        except tf.errors.OpError as error:
            self._raise_what_ended_the_threads()
            if self.is_as_initialized or not isinstance(error, _ERRORS_OF_STATE):
                raise
        self.initialize()
        try:
            return self._time_step()
        except tf.errors.OpError:
            self._raise_what_ended_the_threads()
            raise

    def _raise_what_ended_the_threads(self) -> None:
        """Raises the error of a thread that filled a queue: that the queue is closed says less."""
        error = None if self.threads is None else self.threads.error()
        if error is not None:
            self.stage = _FILLING
            raise error

    def initialize(self) -> None:
        """Runs all initializers, and has the queues filled."""
        if self.threads is not None:
            # A queue that is closed, as at the end of an input, cannot be opened again.
            self.close()
            self.open()
        self._initialize(self.session)
        if self._fill_queues is not None:
            self.threads = self._fill_queues(self.session)
            self._closing.callback(self.threads.stop)
            self.wait_for_input()
        self.is_as_initialized = True

    def wait_for_input(self) -> None:
        """Waits until its queues are full, if it has any, but not for long."""
        if self.threads is not None:
            wait_until_filled([self.threads])

    def _time_step(self) -> tuple[float, list[Any]]:
        start = time.perf_counter()
        fetched = self._run_step()
        secs = time.perf_counter() - start
        self.steps_done += 1
        self.is_as_initialized = False
        return secs, fetched

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Turns what TensorFlow raises in its body into `SessionFailed`."""
        try:
            yield
        except Exception as error:
            raise SessionFailed(error, self.stage, self.steps_done) from None


class LoadedGraph:
    """A graph that is imported once and run under many placements."""

    def __init__(
        self,
        graph_def: tf.compat.v1.GraphDef,
        *,
        fetches: Sequence[str],
        feeds: Mapping[str, np.ndarray],
        initializers: Sequence[str],
        target: str,
        config: tf.compat.v1.ConfigProto,
        initializer_feeds: Mapping[str, np.ndarray] | None = None,
        queue_runners: Sequence[QueueRunner] = (),
        restored: Mapping[str, np.ndarray] | None = None,
        share_variables: bool = False,
    ) -> None:
        """Imports the graph.

        Args:
            graph_def: the graph.
            fetches: names of operations and tensors that a step runs.
            feeds: values by name of the fed tensor.
            initializers: names of the operations to run before the first step.
            target: the server to run on; empty for the devices of this process.
            config: the configuration of every session.
            initializer_feeds: values that the initializers are fed, by name of the tensor.
            queue_runners: what fills queues while a session is open.
            restored: values that variables get behind the initializers, by name of the operation.
            share_variables: whether sessions on the server share their variables where these are
                all the state that the graph has, so that each is initialized once on each device.

        Raises:
            KeyError, ValueError: a name is not in the graph, or a value cannot be fed.
        """
        self._graph = tf.Graph()
        with self._graph.as_default():
            tf.import_graph_def(graph_def, name="")
        self._fetches = [self._graph.as_graph_element(name) for name in fetches]
        operations = [self._graph.get_operation_by_name(name) for name in initializers]
        operations = list(dict.fromkeys(operations))
        assignments = variable_assignments(self._graph, operations) if share_variables else None
        self._shares_variables = assignments is not None
        self._initializers = initializer_order(operations if assignments is None else assignments)
        self._feeds = self._fed(feeds)
        self._handles = self._handles_of(find_fed_iterators(graph_def, feeds))
        self._initializer_feeds = self._fed(initializer_feeds or {})
        self._queue_runners = list(queue_runners)
        self._restored = assignments_of(self._graph, restored or {})
        self._target = target
        self._config = tf.compat.v1.ConfigProto.FromString(config.SerializeToString())
        if self._shares_variables:
            self._config.isolate_session_state = False
        self._original = {node.name: node.device for node in graph_def.node}
        # The import moves operations with a loc:@ to a device that another one there asks for.
        self._current = {op.name: op.device for op in self._graph.get_operations()}
        # Pairs of a shared variable and a device on which it is initialized.
        self._initialized: set[tuple[str, str]] = set()
        self._open: dict[str, tuple[OpenSession, contextlib.ExitStack]] = {}
        # Those in `_open`, and those that something runs in.
        self._active: list[OpenSession] = []

    def _fed(self, feeds: Mapping[str, np.ndarray]) -> dict[tf.Tensor, np.ndarray]:
        """Finds the tensors that are fed.

        Raises:
            KeyError, ValueError: a name is not in the graph, or a value cannot be fed.
        """
        fed = {self._graph.get_tensor_by_name(name): value for name, value in feeds.items()}
        for tensor, value in fed.items():
            if not self._graph.is_feedable(tensor):
                raise ValueError(f"tensor {tensor.name!r} cannot be fed")
            if not tensor.shape.is_compatible_with(value.shape):
                raise ValueError(
                    f"tensor {tensor.name!r} has shape {tensor.shape} and cannot be fed a value "
                    f"of shape {value.shape}"
                )
        return fed

    def _handles_of(self, iterators: Mapping[str, str]) -> dict[tf.Tensor, tf.Tensor]:
        """Adds operations that make the handles of iterators, which are fed as strings."""
        with self._graph.as_default():
            return {
                self._graph.get_tensor_by_name(name): tf.raw_ops.IteratorToStringHandle(
                    resource_handle=self._graph.get_operation_by_name(iterator).outputs[0]
                )
                for name, iterator in iterators.items()
            }

    def _set_devices(self, assignment: Mapping[str, str]) -> None:
        for name in assignment:
            if name not in self._original:
                raise ValueError(
                    f"Cannot assign a device for operation {name}: the graph has no such operation"
                )
        for name, original in self._original.items():
            device = assignment.get(name, original)
            if device != self._current[name]:
                self._graph.get_operation_by_name(name)._set_device(device)
                self._current[name] = device

    @contextlib.contextmanager
    def open(
        self,
        assignment: Mapping[str, str],
        timeout_secs: float,
        report_stage: Callable[[str], None],
        alone_on: Sequence[int] | None = None,
    ) -> Iterator[OpenSession]:
        """Opens a session under a placement and runs the initializers.

        Args:
            assignment: full device names by operation name; the others have the device they came
                with.
            timeout_secs: limit of every single run, unless the session's configuration has one.
            report_stage: called with what comes next.
            alone_on: open it in this process, on these cores and without GPUs, and let it run one
                operation at a time.

        Yields:
            The session, closed afterwards.

        Raises:
            SessionFailed: anything went wrong, also in the body of the `with`.
        """
        config = tf.compat.v1.ConfigProto.FromString(self._config.SerializeToString())
        if not config.operation_timeout_in_ms:
            # A run that hangs on a server must not go on there when this process is killed.
            config.operation_timeout_in_ms = int(timeout_secs * 1000) + 1
        target = self._target
        if alone_on is not None:
            target = ""
            config.intra_op_parallelism_threads = max(1, len(alone_on))
            config.inter_op_parallelism_threads = 1
            # Those of an earlier session may be more.
            config.use_per_session_threads = True
            config.device_count["GPU"] = 0
        opened = None
        try:
            self._set_devices(assignment)
            report_stage(_OPENING)
            with contextlib.ExitStack() as cleanup:
                if alone_on:
                    # Threads inherit the cores of the one that starts them.
                    cleanup.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
                    os.sched_setaffinity(0, alone_on)
                # A session sees devices only if they were set before it was made.
                opened = OpenSession(
                    functools.partial(
                        tf.compat.v1.Session, target, graph=self._graph, config=config
                    ),
                    self._fetches,
                    self._feeds,
                    self._handles,
                    self._run_initializers,
                    self._fill_queues if self._queue_runners else None,
                    report_stage,
                )
                self._active.append(opened)
                cleanup.callback(self._active.remove, opened)
                cleanup.callback(opened.close)
                opened.open()
                # A session in this process does not see the variables of other processes.
                self._initialize(opened, shares_variables=target == self._target)
                yield opened
        except SessionFailed:
            raise
        except Exception as error:
            stage, steps_done = (opened.stage, opened.steps_done) if opened else (_PLACING, 0)
            raise SessionFailed(error, stage, steps_done) from None

    def _run_initializers(self, session: tf.compat.v1.Session) -> None:
        for together in self._initializers:
            session.run(together, self._initializer_feeds)
        for assignments, values in self._restored:
            session.run(assignments, values)

    def _fill_queues(self, session: tf.compat.v1.Session) -> QueueThreads:
        return QueueThreads(self._graph, self._queue_runners, session)

    def _initialize(self, opened: OpenSession, *, shares_variables: bool) -> None:
        """Runs the initializers, unless each variable has a value on its device."""
        if not (self._initializers or self._restored or self._queue_runners):
            opened.is_as_initialized = True
            return
        here: set[tuple[str, str]] = set()
        if self._shares_variables and shares_variables:
            assignments = (*self._initializers, *(each for each, _ in self._restored))
            variables = map(find_assigned_variable, itertools.chain(*assignments))
            here = {(variable.name, variable.device) for variable in variables if variable}
            # Without a device nobody knows where TensorFlow has put it before.
            if here <= self._initialized and all(device for _, device in here):
                return
        opened.enter(_INITIALIZING)
        opened.initialize()
        self._initialized |= here

    def open_session(
        self,
        label: str,
        assignment: Mapping[str, str],
        dropped: int,
        timeout_secs: float,
        report_stage: Callable[[str], None],
    ) -> dict[str, Any]:
        """Opens a session that stays open, beside others, and warms it up.

        Args:
            label: its name; one that is open is closed before.
            assignment: full device names by operation name.
            dropped: how many steps run to warm it up.
            timeout_secs: limit of every single run.
            report_stage: called with what comes next.

        Returns:
            `setup_secs`: what all took.

        Raises:
            SessionFailed: anything went wrong; the session is closed.
        """
        start = time.perf_counter()
        self.close_session(label)
        with contextlib.ExitStack() as stack:
            opened = stack.enter_context(self.open(assignment, timeout_secs, report_stage))
            with opened.failing():
                if dropped:
                    opened.enter("the warm-up steps")
                for _ in range(dropped):
                    opened.step()
            self._open[label] = (opened, stack.pop_all())
        return {"setup_secs": time.perf_counter() - start}

    def run_steps(self, label: str, count: int) -> dict[str, Any]:
        """Times steps of an open session.

        Args:
            label: of the session.
            count: how many steps to run.

        Returns:
            `step_secs`.

        Raises:
            KeyError: there is no such session.
            SessionFailed: anything went wrong.
        """
        opened, _ = self._open[label]
        opened.stage = "the counted steps"
        wait_until_filled([each.threads for each, _ in self._open.values() if each.threads])
        with opened.failing():
            return {"step_secs": [opened.step()[0] for _ in range(count)]}

    def close_session(self, label: str) -> None:
        """Closes a session, if it is open."""
        if label in self._open:
            self._open.pop(label)[1].close()

    def close_sessions(self) -> None:
        """Closes all sessions that are open."""
        for label in list(self._open):
            self.close_session(label)

    def cancel(self) -> None:
        """Breaks off, from another thread, whatever its sessions run; they are of no use then."""
        for opened in list(self._active):
            opened.cancel()

    def connect(self, target: str) -> None:
        """Opens all further sessions on another server, where no variable has a value."""
        self.close_sessions()
        self._target = target
        self._initialized.clear()

    def trace(
        self,
        assignment: Mapping[str, str],
        steps: int,
        dropped: int,
        alone_on: Sequence[int] | None,
        timeout_secs: float,
        report_stage: Callable[[str], None],
    ) -> dict[str, Any]:
        """Times steps under a placement, then traces some.

        Args:
            assignment: full device names by operation name.
            steps: how many steps to trace; as many are timed without a trace, or a few if they run
                in this process, where they only stand in for those of the machine.
            dropped: how many of the first ones do not count.
            alone_on: as of `open`.
            timeout_secs: limit of every single run.
            report_stage: called with what comes next.

        Returns:
            `step_secs` of the counted steps without a trace, and `operations`: what the counted
            traces say of each (see `summarize`).

        Raises:
            SessionFailed: anything went wrong.
        """
        options = tf.compat.v1.RunOptions(
            trace_level=tf.compat.v1.RunOptions.FULL_TRACE, timeout_in_ms=int(timeout_secs * 1000)
        )
        with self.open(assignment, timeout_secs, report_stage, alone_on) as opened:
            opened.enter("the steps")
            timed = steps if alone_on is None else min(steps, dropped + _TIMED_ALONE)
            step_secs = []
            for _ in range(timed):
                # A dequeue operation that waits would count as running.
                opened.wait_for_input()
                step_secs.append(opened.step()[0])
            opened.enter("the traced steps")
            traces = []
            for _ in range(steps):
                metadata = tf.compat.v1.RunMetadata()
                opened.wait_for_input()
                opened.session.run(self._fetches, opened.feeds, options, metadata)
                opened.steps_done += 1
                traces.append(metadata.step_stats)
        return {"step_secs": step_secs[dropped:], "operations": summarize(traces[dropped:])}

    def run_with(
        self, session: tf.compat.v1.Session, tensors: Sequence[str]
    ) -> tuple[list[Any], dict[str, np.ndarray]]:
        """Runs a step that fetches more than steps do.

        Args:
            session: an open session of the graph.
            tensors: what else to fetch, by name.

        Returns:
            What steps fetch, and the values of the tensors by name.
        """
        more = {name: self._graph.get_tensor_by_name(name) for name in tensors}
        fetched, values = session.run([self._fetches, more], self._feeds)
        return fetched, values

    def time_each(
        self,
        fetches: Sequence[str],
        rounds: int,
        dropped: int,
        processes: Sequence[int],
        timeout_secs: float,
        report_stage: Callable[[str], None],
        enough_secs: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> list[dict[str, Any]]:
        """Times several operations of the graph as it came, taking turns.

        Args:
            fetches: names of operations, each timed alone.
            rounds: how often each runs.
            dropped: how many of the first rounds do not count.
            processes: ids of processes whose processor time is measured.
            timeout_secs: limit of every single run.
            report_stage: called with what comes next.
            enough_secs: after so many seconds the fewest rounds that say something are enough.
            clock: gives the time in seconds.

        Returns:
            For each fetch `secs` of its counted runs and `cpu_secs`, a list of those of each
            process.

        Raises:
            SessionFailed: anything went wrong.
        """
        with self.open({}, timeout_secs, report_stage) as opened:
            opened.enter("the timed operations")
            runs = [
                opened.session.make_callable(self._graph.get_operation_by_name(name))
                for name in fetches
            ]
            secs = np.zeros([len(runs), rounds])
            cpu_secs = np.zeros([len(runs), rounds, len(processes)])
            end_secs = clock() + enough_secs
            num_run = 0
            while num_run < rounds:
                if num_run >= dropped + _LEAST_ROUNDS and clock() >= end_secs:
                    break
                for k, run in enumerate(runs):
                    used = _cpu_secs(processes)
                    start = time.perf_counter()
                    run()
                    secs[k, num_run] = time.perf_counter() - start
                    cpu_secs[k, num_run] = _cpu_secs(processes) - used
                num_run += 1
        counted = slice(dropped, num_run)
        return [
            {"secs": times[counted].tolist(), "cpu_secs": used[counted].T.tolist()}
            for times, used in zip(secs, cpu_secs, strict=True)
        ]


def _cpu_secs(processes: Sequence[int]) -> np.ndarray:
    """Reads the processor time that processes have used."""
    # Linux makes the number of a process's clock from its id: clock_getcpuclockid(3).
    return np.array([time.clock_gettime(~process << 3 | 2) for process in processes])


def _close(session: tf.compat.v1.Session) -> None:
    # An error from closing a failed session would hide the original error.
    with contextlib.suppress(tf.errors.OpError):
        session.close()
