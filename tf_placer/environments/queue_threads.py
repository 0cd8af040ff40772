"""The threads that fill the queues of a session."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import queue_runner_pb2

from tf_placer.inputs.step import QueueRunner

__all__ = ["QueueThreads", "wait_until_filled"]


@dataclasses.dataclass(frozen=True)
class _QueueLimits:
    """Limits of waiting for queues and their threads.

    Queues count as full when nothing was put into them for `quiet_ratio` times the duration of an
    enqueue operation, within the limits of seconds. Threads that do not end within
    `stop_timeout_secs` do not keep their session from being closed.
    """

    quiet_ratio: float = 3.0
    min_quiet_secs: float = 0.03
    max_quiet_secs: float = 0.25
    max_filling_secs: float = 2.0
    stop_timeout_secs: float = 5.0


_LIMITS = _QueueLimits()
# An enqueue operation may wait for the turn of its session: allow the maximum, about 24 days.
_PATIENT = tf.compat.v1.RunOptions(timeout_in_ms=2**31 - 1)


class QueueThreads:
    """Starts and stops the threads that fill the queues of one session."""

    def __init__(
        self, graph: tf.Graph, runners: Sequence[QueueRunner], session: tf.compat.v1.Session
    ) -> None:
        """Starts the threads.

        Args:
            graph: the graph of the session.
            runners: the queue runners; each thread runs one of their operations.
            session: an initialized session.
        """
        self._coordinator = tf.compat.v1.train.Coordinator()
        self._threads: list[Any] = []
        self._start_secs = time.monotonic()
        self._num_operations = len({name for runner in runners for name in runner.enqueue})
        self._session = patient = _PatientSession(session)
        with graph.as_default():
            for runner in runners:
                made = tf.compat.v1.train.QueueRunner(queue_runner_def=_build_proto(runner))
                self._threads += made.create_threads(
                    patient, self._coordinator, daemon=True, start=True
                )

    def error(self) -> Exception | None:
        """Returns the error of a thread, or None; the end of an input is no error."""
        try:
            self._coordinator.raise_requested_exception()
        except Exception as error:
            return error
        return None

    @property
    def runs(self) -> int:
        """The number of enqueue operations that ran."""
        return self._session.runs

    def estimate_enqueue_secs(self) -> float | None:
        """Estimates the longest duration of an enqueue operation on a queue that is not full.

        Returns:
            Seconds; None while the first run of an operation is still expected.
        """
        least_secs = self._session.least_secs
        # An operation that enqueues more than the capacity of its queue never completes a run.
        is_new = time.monotonic() < self._start_secs + _LIMITS.max_filling_secs
        if is_new and len(least_secs) < self._num_operations and not self._has_ended():
            return None
        return max(least_secs.values(), default=0.0)

    def _has_ended(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Closes the queues and waits for a limited time for the threads to end."""
        self._coordinator.request_stop()
        try:
            self._coordinator.join(
                self._threads,
                stop_grace_period_secs=_LIMITS.stop_timeout_secs,
                ignore_live_threads=True,
            )
        except Exception:
            # Callers that need the error of a thread call `error` before.
            return


def wait_until_filled(threads: Collection[QueueThreads]) -> None:
    """Waits for a limited time until the queues of sessions are full.

    Otherwise sessions that take turns would not be comparable: while one waits for its input, the
    queues of the other fill up.

    Args:
        threads: the threads of all sessions.
    """
    deadline = time.monotonic() + _LIMITS.max_filling_secs
    runs, since = -1, time.monotonic()
    while threads and time.monotonic() < deadline:
        now = time.monotonic()
        if (now_runs := sum(each.runs for each in threads)) != runs:
            runs, since = now_runs, now
        enqueue_secs = [each.estimate_enqueue_secs() for each in threads]
        known = [secs for secs in enqueue_secs if secs is not None]
        quiet_secs = max(_LIMITS.min_quiet_secs, _LIMITS.quiet_ratio * max(known, default=0.0))
        if len(known) == len(enqueue_secs) and now - since >= min(
            quiet_secs, _LIMITS.max_quiet_secs
        ):
            return
        time.sleep(_LIMITS.min_quiet_secs / 3)


class _PatientSession:
    """Runs operations of a session without a time limit, and counts the runs."""

    def __init__(self, session: tf.compat.v1.Session) -> None:
        self.graph = session.graph
        self.run = session.run
        self.runs = 0
        # Seconds of the fastest run by operation name.
        self.least_secs: dict[str, float] = {}

    def make_callable(self, operation: tf.Operation) -> Callable[[], None]:
        """Makes a function that runs an operation."""
        name = operation.name

        def run() -> None:
            start = time.monotonic()
            self.run(operation, options=_PATIENT)
            secs = time.monotonic() - start
            self.least_secs[name] = min(secs, self.least_secs.get(name, secs))
            self.runs += 1

        return run


def _build_proto(runner: QueueRunner) -> queue_runner_pb2.QueueRunnerDef:
    return queue_runner_pb2.QueueRunnerDef(
        queue_name=runner.queue,
        enqueue_op_name=runner.enqueue,
        close_op_name=runner.close,
        cancel_op_name=runner.cancel,
        queue_closed_exception_types=runner.ends,
    )
