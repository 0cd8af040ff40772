"""A graph that the worker has loaded, and its sessions under placements."""

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

from tf_placer.environments.initializer_order import order_initializers
from tf_placer.environments.queue_threads import QueueThreads, wait_until_filled
from tf_placer.environments.restored_variables import add_assignments
from tf_placer.environments.step_stats import summarize_traces
from tf_placer.environments.variable_state import find_assigned_variable, find_variable_assignments
from tf_placer.inputs.iterator_handles import find_fed_iterators
from tf_placer.inputs.step import QueueRunner

__all__ = ["LoadedGraph", "OpenSession", "SessionFailed"]

_PLACING = "placing the operations"
_OPENING = "opening the session"
_INITIALIZING = "the initializers"
_FILLING = "filling the queues"
_COUNTED_STEPS_ALONE = 2
_MIN_COUNTED_ROUNDS = 3
# Errors that the values of variables or the position of an iterator can cause.
_ERRORS_OF_STATE = (
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.OutOfRangeError,
)


class SessionFailed(Exception):
    """An exception that TensorFlow raised in a session.

    Attributes:
        error_type: name of the exception's class, "InvalidArgumentError".
        message: the message of the exception.
        stage: the stage that failed, such as "the initializers".
        steps_done: number of steps that ran before it.
    """

    def __init__(self, error: Exception, stage: str, steps_done: int) -> None:
        # str() of an OpError adds the source line that made the session; its message does not.
        self.message: str = getattr(error, "message", None) or str(error)
        super().__init__(self.message)
        self.error_type = type(error).__name__
        self.stage = stage
        self.steps_done = steps_done


class OpenSession:
    """A session that has run the initializers.

    Attributes:
        session: the session; replaced by another one when the input of its queues has ended.
        threads: the threads that fill the queues of the session, or None.
        feeds: values by the tensor that a step is fed.
        stage: the latest stage, for messages.
        steps_done: number of steps that ran.
        is_in_initial_state: True if no step ran since the initializers.
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
        """Prepares the session without opening it.

        Args:
            make_session: makes a session.
            fetches: operations and tensors that a step runs.
            feeds: values by the tensor that a step is fed.
            handles: tensors that compute the value of a fed tensor in the session itself, by the
                fed tensor.
            initialize: runs all initializers in a session.
            fill_queues: starts the threads that fill the queues of an initialized session; None
                without queues.
            report_stage: called with the name of each stage when it begins.
        """
        self.steps_done = 0
        self.stage = _OPENING
        self.is_in_initial_state = False
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
        """Cancels the current and all later runs of the session, from another thread."""
        if hasattr(self, "session"):
            _close(self.session)

    def enter(self, stage: str) -> None:
        """Begins a stage and reports it."""
        self.stage = stage
        self._report_stage(stage)

    def step(self) -> tuple[float, list[Any]]:
        """Runs a step.

        A step may fail because its input has ended, or because training on one batch has led to
        values that an assertion of the graph forbids. So a failed step is run once more from the
        initial state, unless it began there.

        Returns:
            Its seconds, and the fetched values, None for operations.
        """
        try:
            return self._time_step()
        except tf.errors.OpError as error:
            self._raise_thread_error()
            if self.is_in_initial_state or not isinstance(error, _ERRORS_OF_STATE):
                raise
        self.initialize()
        try:
            return self._time_step()
        except tf.errors.OpError:
            self._raise_thread_error()
            raise

    def _raise_thread_error(self) -> None:
        """Raises the error of a thread that filled a queue: it says more than a closed queue."""
        error = None if self.threads is None else self.threads.error()
        if error is not None:
            self.stage = _FILLING
            raise error

    def initialize(self) -> None:
        """Runs all initializers and starts to fill the queues."""
        if self.threads is not None:
            # A queue that was closed, as at the end of an input, cannot be reopened.
            self.close()
            self.open()
        self._initialize(self.session)
        if self._fill_queues is not None:
            self.threads = self._fill_queues(self.session)
            self._closing.callback(self.threads.stop)
            self.wait_for_input()
        self.is_in_initial_state = True

    def wait_for_input(self) -> None:
        """Waits for a limited time until the queues, if any, are full."""
        if self.threads is not None:
            wait_until_filled([self.threads])

    def _time_step(self) -> tuple[float, list[Any]]:
        start = time.perf_counter()
        fetched = self._run_step()
        secs = time.perf_counter() - start
        self.steps_done += 1
        self.is_in_initial_state = False
        return secs, fetched

    @contextlib.contextmanager
    def wrap_errors(self) -> Iterator[None]:
        """Turns exceptions in the body of a `with` into `SessionFailed`."""
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
            initializers: names of operations that run before the first step.
            target: the server to run on; empty for the devices of this process.
            config: the configuration of every session.
            initializer_feeds: values that the initializers are fed, by name of the tensor.
            queue_runners: runners that fill queues while a session is open.
            restored: values that variables get after the initializers, by name of the operation.
            share_variables: whether sessions on the server share their variables if the graph has
                no other state, so that each variable is initialized once on each device.

        Raises:
            KeyError, ValueError: a name is not in the graph, or a value cannot be fed.
        """
        self._graph = tf.Graph()
        with self._graph.as_default():
            tf.import_graph_def(graph_def, name="")
        self._fetches = [self._graph.as_graph_element(name) for name in fetches]
        operations = [self._graph.get_operation_by_name(name) for name in initializers]
        operations = list(dict.fromkeys(operations))
        assignments = (
            find_variable_assignments(self._graph, operations) if share_variables else None
        )
        self._shares_variables = assignments is not None
        self._initializers = order_initializers(operations if assignments is None else assignments)
        self._feeds = self._find_feeds(feeds)
        self._handles = self._add_handles(find_fed_iterators(graph_def, feeds))
        self._initializer_feeds = self._find_feeds(initializer_feeds or {})
        self._queue_runners = list(queue_runners)
        self._restored = add_assignments(self._graph, restored or {})
        self._target = target
        self._config = tf.compat.v1.ConfigProto.FromString(config.SerializeToString())
        if self._shares_variables:
            self._config.isolate_session_state = False
        self._original = {node.name: node.device for node in graph_def.node}
        # The import moves an operation with a loc:@ to a device requested within its colocation.
        self._current = {op.name: op.device for op in self._graph.get_operations()}
        # Pairs of a shared variable and a device on which it is initialized.
        self._initialized: set[tuple[str, str]] = set()
        self._open: dict[str, tuple[OpenSession, contextlib.ExitStack]] = {}
        # The sessions in `_open`, and sessions that are open only during a command.
        self._active: list[OpenSession] = []

    def _find_feeds(self, feeds: Mapping[str, np.ndarray]) -> dict[tf.Tensor, np.ndarray]:
        """Finds the fed tensors by name and checks their values.

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

    def _add_handles(self, iterators: Mapping[str, str]) -> dict[tf.Tensor, tf.Tensor]:
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
            assignment: full device names by operation name; other operations keep their original
                device.
            timeout_secs: limit of every single run, unless the session's configuration has one.
            report_stage: called with the name of each stage when it begins.
            alone_on: cores on which the session runs in this process, without GPUs and one
                operation at a time; None for a session on the server.

        Yields:
            The session, closed afterwards.

        Raises:
            SessionFailed: TensorFlow raised an exception, also in the body of the `with`.
        """
        config = tf.compat.v1.ConfigProto.FromString(self._config.SerializeToString())
        if not config.operation_timeout_in_ms:
            # A run that hangs on a server must end there even if this process is killed.
            config.operation_timeout_in_ms = int(timeout_secs * 1000) + 1
        target = self._target
        if alone_on is not None:
            target = ""
            config.intra_op_parallelism_threads = max(1, len(alone_on))
            config.inter_op_parallelism_threads = 1
            # Threads shared with an earlier session may be more than this limit.
            config.use_per_session_threads = True
            config.device_count["GPU"] = 0
        opened = None
        try:
            self._set_devices(assignment)
            report_stage(_OPENING)
            with contextlib.ExitStack() as cleanup:
                if alone_on:
                    # Threads inherit the cores of the thread that starts them.
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
        """Runs the initializers, unless every variable already has a value on its device."""
        if not (self._initializers or self._restored or self._queue_runners):
            opened.is_in_initial_state = True
            return
        here: set[tuple[str, str]] = set()
        if self._shares_variables and shares_variables:
            assignments = (*self._initializers, *(each for each, _ in self._restored))
            variables = map(find_assigned_variable, itertools.chain(*assignments))
            here = {(variable.name, variable.device) for variable in variables if variable}
            # The earlier device of a variable without a requested device is unknown.
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
        """Opens a session that stays open and warms it up; several can be open.

        Args:
            label: its name; an open session with this name is closed first.
            assignment: full device names by operation name.
            dropped: number of warm-up steps.
            timeout_secs: limit of every single run.
            report_stage: called with the name of each stage when it begins.

        Returns:
            `setup_secs`: seconds to open, initialize and warm up the session.

        Raises:
            SessionFailed: TensorFlow raised an exception; the session is closed.
        """
        start = time.perf_counter()
        self.close_session(label)
        with contextlib.ExitStack() as stack:
            opened = stack.enter_context(self.open(assignment, timeout_secs, report_stage))
            with opened.wrap_errors():
                if dropped:
                    opened.enter("the warm-up steps")
                for _ in range(dropped):
                    opened.step()
            self._open[label] = (opened, stack.pop_all())
        return {"setup_secs": time.perf_counter() - start}

    def run_steps(self, label: str, count: int) -> dict[str, Any]:
        """Times steps of an open session.

        Args:
            label: the name of the session.
            count: number of steps to run.

        Returns:
            `step_secs`: seconds of each step.

        Raises:
            KeyError: there is no such session.
            SessionFailed: TensorFlow raised an exception.
        """
        opened, _ = self._open[label]
        opened.stage = "the counted steps"
        wait_until_filled([each.threads for each, _ in self._open.values() if each.threads])
        with opened.wrap_errors():
            return {"step_secs": [opened.step()[0] for _ in range(count)]}

    def close_session(self, label: str) -> None:
        """Closes a session, if it is open."""
        if label in self._open:
            self._open.pop(label)[1].close()

    def close_sessions(self) -> None:
        """Closes all open sessions."""
        for label in list(self._open):
            self.close_session(label)

    def cancel(self) -> None:
        """Cancels all runs of its sessions, from another thread; the sessions become unusable."""
        for opened in list(self._active):
            opened.cancel()

    def connect(self, target: str) -> None:
        """Switches to another server, where no variable has a value yet."""
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
        """Times steps under a placement, then traces further steps.

        Args:
            assignment: full device names by operation name.
            steps: number of steps to trace; as many are timed without a trace, or only a few if
                they run in this process, where their times only approximate the machine's.
            dropped: number of first steps that do not count.
            alone_on: see `open`.
            timeout_secs: limit of every single run.
            report_stage: called with the name of each stage when it begins.

        Returns:
            `step_secs` of the counted steps without a trace, and `operations`: the summary of the
            counted traces (see `summarize_traces`).

        Raises:
            SessionFailed: TensorFlow raised an exception.
        """
        options = tf.compat.v1.RunOptions(
            trace_level=tf.compat.v1.RunOptions.FULL_TRACE, timeout_in_ms=int(timeout_secs * 1000)
        )
        with self.open(assignment, timeout_secs, report_stage, alone_on) as opened:
            opened.enter("the steps")
            timed = steps if alone_on is None else min(steps, dropped + _COUNTED_STEPS_ALONE)
            step_secs = []
            for _ in range(timed):
                # The wait of a dequeue operation would count as running time.
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
        return {"step_secs": step_secs[dropped:], "operations": summarize_traces(traces[dropped:])}

    def run_with(
        self, session: tf.compat.v1.Session, tensors: Sequence[str]
    ) -> tuple[list[Any], dict[str, np.ndarray]]:
        """Runs a step that fetches additional tensors.

        Args:
            session: an open session of the graph.
            tensors: names of the additional tensors.

        Returns:
            The usual fetches, and the values of the additional tensors by name.
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
        """Times several operations of the original, taking turns.

        Args:
            fetches: names of operations, each timed alone.
            rounds: number of runs of each operation.
            dropped: number of first rounds that do not count.
            processes: ids of processes whose processor time is measured.
            timeout_secs: limit of every single run.
            report_stage: called with the name of each stage when it begins.
            enough_secs: seconds after which the minimum of rounds is enough.
            clock: gives the time in seconds.

        Returns:
            For each fetch `secs` of its counted runs, and `cpu_secs`, a list per process of the
            processor time in each counted run.

        Raises:
            SessionFailed: TensorFlow raised an exception.
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
                if num_run >= dropped + _MIN_COUNTED_ROUNDS and clock() >= end_secs:
                    break
                for k, run in enumerate(runs):
                    used = _read_cpu_secs(processes)
                    start = time.perf_counter()
                    run()
                    secs[k, num_run] = time.perf_counter() - start
                    cpu_secs[k, num_run] = _read_cpu_secs(processes) - used
                num_run += 1
        counted = slice(dropped, num_run)
        return [
            {"secs": times[counted].tolist(), "cpu_secs": used[counted].T.tolist()}
            for times, used in zip(secs, cpu_secs, strict=True)
        ]


def _read_cpu_secs(processes: Sequence[int]) -> np.ndarray:
    """Reads the processor time that processes have used."""
    # Linux derives the clock id of a process from its process id: clock_getcpuclockid(3).
    return np.array([time.clock_gettime(~process << 3 | 2) for process in processes])


def _close(session: tf.compat.v1.Session) -> None:
    # An error from closing a failed session would hide the original error.
    with contextlib.suppress(tf.errors.OpError):
        session.close()
