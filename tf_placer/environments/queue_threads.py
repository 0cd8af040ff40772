"""The threads that fill the queues of a session."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import queue_runner_pb2

from tf_placer.inputs.step import QueueRunner

__all__ = ["QueueThreads", "wait_until_filled"]

# Queues that nothing was put into for so many times as long as that takes, within limits, are full;
# and how long it may take until then.
_QUIET_RATIO, _LEAST_QUIET_SECS, _MOST_QUIET_SECS = 3.0, 0.03, 0.25
_MAX_FILLING_SECS = 2.0
_STOP_SECS = 5.0
# A queue that is full may have to wait for the turn of its session: about 24 days.
_PATIENT = tf.compat.v1.RunOptions(timeout_in_ms=2**31 - 1)


class QueueThreads:
    """Starts and stops the threads that fill the queues of one session."""

    def __init__(
        self, graph: tf.Graph, runners: Sequence[QueueRunner], session: tf.compat.v1.Session
    ) -> None:
        """Starts the threads.

        Args:
            graph: of the session.
            runners: what the threads run.
            session: it has run its initializers.
        """
        self._coordinator = tf.compat.v1.train.Coordinator()
        self._threads: list[Any] = []
        self._start_secs = time.monotonic()
        self._num_operations = len({name for runner in runners for name in runner.enqueue})
        self._session = patient = _PatientSession(session)
        with graph.as_default():
            for runner in runners:
                made = tf.compat.v1.train.QueueRunner(queue_runner_def=_proto(runner))
                self._threads += made.create_threads(
                    patient, self._coordinator, daemon=True, start=True
                )

    def error(self) -> Exception | None:
        """Returns what ended the threads, if they failed; an input that ended is no failure."""
        try:
            self._coordinator.raise_requested_exception()
        except Exception as error:
            return error
        return None

    @property
    def runs(self) -> int:
        """The number of enqueue operations that ran."""
        return self._session.runs

    def filling_secs(self) -> float | None:
        """Computes how long it takes at most to put something into a queue that is not full.

        Returns:
            Seconds; None as long as some operation should do it for the first time.
        """
        least_secs = self._session.least_secs
        # One that puts more into a queue than there is room for waits from the start.
        is_new = time.monotonic() < self._start_secs + _MAX_FILLING_SECS
        if is_new and len(least_secs) < self._num_operations and not self._has_ended():
            return None
        return max(least_secs.values(), default=0.0)

    def _has_ended(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Closes the queues and waits for the threads to end, but not for long."""
        self._coordinator.request_stop()
        try:
            self._coordinator.join(
                self._threads, stop_grace_period_secs=_STOP_SECS, ignore_live_threads=True
            )
        except Exception:
            # Callers that need the error read it by `error` before.
            return


def wait_until_filled(threads: Collection[QueueThreads]) -> None:
    """Waits until the queues of sessions are full, but not for long.

    Sessions that take turns would not be equal otherwise: while one waits for its input, the other
    gets ahead.

    Args:
        threads: of all sessions.
    """
    deadline = time.monotonic() + _MAX_FILLING_SECS
    runs, since = -1, time.monotonic()
    while threads and time.monotonic() < deadline:
        now = time.monotonic()
        if (now_runs := sum(each.runs for each in threads)) != runs:
            runs, since = now_runs, now
        filling_secs = [each.filling_secs() for each in threads]
        known = [secs for secs in filling_secs if secs is not None]
        quiet_secs = max(_LEAST_QUIET_SECS, _QUIET_RATIO * max(known, default=0.0))
        if len(known) == len(filling_secs) and now - since >= min(quiet_secs, _MOST_QUIET_SECS):
            return
        time.sleep(_LEAST_QUIET_SECS / 3)


class _PatientSession:
    """Runs operations of a session that may wait for as long as they like, and counts them."""

    def __init__(self, session: tf.compat.v1.Session) -> None:
        self.graph = session.graph
        self.run = session.run
        self.runs = 0
        # By operation, of the run that waited least.
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


def _proto(runner: QueueRunner) -> queue_runner_pb2.QueueRunnerDef:
    return queue_runner_pb2.QueueRunnerDef(
        queue_name=runner.queue,
        enqueue_op_name=runner.enqueue,
        close_op_name=runner.close,
        cancel_op_name=runner.cancel,
        queue_closed_exception_types=runner.ends,
    )
