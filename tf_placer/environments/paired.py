"""Paired measurements: a placement and the original take turns in the same processes."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np
from absl import logging

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.paired_steps import burst_steps, log_speedup
from tf_placer.environments.retry import mark_as_retry, run_with_retry
from tf_placer.environments.session import SessionEnvironment

__all__ = ["PAIRED", "PairedEnvironment", "PairedProtocol"]

_REFERENCE, _CANDIDATE = "original", "candidate"


@dataclasses.dataclass(frozen=True)
class _ReferenceLimits:
    """Limits of the reference, the session of the original.

    The first steps of fresh processes are slow: they only determine the steps per burst. Shared
    computers drift by a factor of up to 2.6, so processes are only replaced beyond that.
    """

    first_steps: int = 4
    replacement_slowness: float = 3.0


_LIMITS = _ReferenceLimits()


@dataclasses.dataclass(frozen=True)
class PairedProtocol:
    """The turns of a placement and the original.

    In a block each of the two runs one burst of steps; every second block swaps the order. The
    measurement of a placement that is clearly worse than the best so far ends after few blocks.
    Long steps have fewer blocks, because an estimate from four is hardly worse: either uses the
    three quietest pairs.

    Attributes:
        hopeless_blocks: blocks of a hopeless placement.
        hopeless_ratio: a placement is hopeless above this ratio of its step time to the best one.
        worse_blocks: blocks of a worse placement.
        worse_ratio: a placement is worse above this ratio of its step time to the best one.
        most_blocks: blocks of all other placements.
        most_long_blocks: the same where bursts are long.
        long_burst_secs: bursts are long where one of the original takes at least these seconds.
        burst_secs: minimum seconds of a burst; a single step may take longer.
    """

    hopeless_blocks: int = 2
    hopeless_ratio: float = 1.4
    worse_blocks: int = 3
    worse_ratio: float = 1.1
    most_blocks: int = 6
    most_long_blocks: int = 4
    long_burst_secs: float = 0.125
    burst_secs: float = 0.01

    def plan_turns(self, original_secs: float) -> tuple[int, int]:
        """Plans the turns of a placement from the seconds of a step of the original.

        Returns:
            The steps of a burst, and the blocks of a placement that is not worse than the best.
        """
        steps = burst_steps(original_secs, self.burst_secs)
        is_long = steps * original_secs >= self.long_burst_secs
        return steps, self.most_long_blocks if is_long else self.most_blocks


PAIRED = PairedProtocol()
"""The protocol of a trial of a live search."""


class PairedEnvironment:
    """Measures placements relative to the original.

    The session of the original stays open, and every placement takes turns with it. So a slow phase
    of the machine is not mistaken for a slow placement: `Measurement.drift` is the slowness of the
    machine, and `Measurement.median_secs` excludes it. If the original does not run, or the two do
    not fit into memory together, placements are measured alone.

    A placement is measured once more, in fresh processes, if a process died during its measurement
    or if the original was far slower than at first, because an old process may have become slow. If
    fresh processes are as slow, the machine is slow.

    Attributes:
        reference_secs: seconds of a step of the original in its first measurement; None before
            that, and if the original does not run.
    """

    def __init__(
        self,
        sessions: SessionEnvironment,
        assign: Callable[[np.ndarray], Mapping[str, str]],
        *,
        protocol: PairedProtocol = PAIRED,
        reference_secs: float | None = None,
        best_secs: Callable[[], float | None] = lambda: None,
        report: Callable[[str], None] = logging.warning,
    ) -> None:
        """Prepares the environment without opening a session.

        Args:
            sessions: the environment that runs the steps.
            assign: turns a placement, int32 [num_groups], into device names by operation name.
            protocol: the turns of placements and the original.
            reference_secs: `reference_secs` of the search that is resumed, if any.
            best_secs: returns the step time of the fastest placement so far, without drift.
            report: called with a message for users when a measurement is repeated.
        """
        self._sessions = sessions
        self._assign = assign
        self._protocol = protocol
        self._best_secs = best_secs
        self._report = report
        self._fits_beside = True
        # True if fresh processes were far slower than the original's first measurement.
        self._is_machine_slow = False
        self.reference_secs = reference_secs

    def measure_original(self) -> Measurement:
        """Measures the original, whose session stays open.

        Raises:
            WorkerStartError: the processes do not start.
        """
        return run_with_retry(self._measure_original_once, self._report)

    def _measure_original_once(self) -> Measurement:
        start_secs = time.monotonic()
        setup_secs = self._sessions.open_session(_REFERENCE, {})
        if isinstance(setup_secs, Failure):
            return Measurement(failure=setup_secs, setup_secs=time.monotonic() - start_secs)
        first = self._sessions.run_steps(_REFERENCE, _LIMITS.first_steps)
        if isinstance(first, Failure):
            self._sessions.close_session(_REFERENCE)
            return Measurement(failure=first, setup_secs=time.monotonic() - start_secs)
        steps = self._sessions.run_steps(
            _REFERENCE, math.prod(self._protocol.plan_turns(min(first)))
        )
        if isinstance(steps, Failure):
            self._sessions.close_session(_REFERENCE)
            return Measurement(failure=steps, setup_secs=time.monotonic() - start_secs)
        self.reference_secs = statistics.median(steps)
        return Measurement(steps, setup_secs=setup_secs + sum(first))

    def measure(self, placements: np.ndarray) -> list[Measurement]:
        """Measures placements one after the other.

        Args:
            placements: int32 [num_placements, num_groups], a device index per group.

        Returns:
            One measurement per placement, which may be a failure.

        Raises:
            WorkerStartError: the processes do not start; no placement is at fault.
        """
        return [self.measure_assignment(self._assign(placement)) for placement in placements]

    def measure_assignment(self, assignment: Mapping[str, str]) -> Measurement:
        """Measures the graph with the given devices.

        Args:
            assignment: full device names by operation name.

        Returns:
            Step times or a failure.

        Raises:
            WorkerStartError: the processes do not start; no placement is at fault.
        """
        usual_secs = self.reference_secs
        if usual_secs is None or not self._fits_beside or not self._ensure_reference():
            return self._sessions.measure_assignment(assignment)
        measurement = self._measure_beside(assignment, usual_secs)
        if (why := self._find_invalid_reason(measurement, usual_secs)) is not None:
            self._report(f"{why}: measuring the placement once more, in fresh processes")
            self._sessions.stop()
            if not self._ensure_reference():
                return self._sessions.measure_assignment(assignment)
            measurement = mark_as_retry(self._measure_beside(assignment, usual_secs))
            if _compute_slowness(measurement, usual_secs) >= _LIMITS.replacement_slowness:
                self._report("fresh processes are as slow: something else slows the computer down")
        self._is_machine_slow = (
            _compute_slowness(measurement, usual_secs) >= _LIMITS.replacement_slowness
        )
        failure = measurement.failure
        if failure is None or failure.kind is not FailureKind.OUT_OF_MEMORY:
            return measurement
        # The placement may fit into memory without the original.
        self._sessions.restart()
        alone = self._sessions.measure_assignment(assignment)
        if alone.failure is None:
            self._fits_beside = False
        return alone

    def _find_invalid_reason(self, measurement: Measurement, usual_secs: float) -> str | None:
        """Finds why the processes make a measurement invalid; None if it is valid."""
        failure, slowness = measurement.failure, _compute_slowness(measurement, usual_secs)
        if failure is not None and failure.kind is FailureKind.WORKER_DIED:
            return failure.message
        if slowness >= _LIMITS.replacement_slowness and not self._is_machine_slow:
            return f"the original takes {slowness:.1f} times as long as at first"
        return None

    def _ensure_reference(self) -> bool:
        """Opens the session of the original unless it is open; says whether it is open now."""
        if self._sessions.has_session(_REFERENCE):
            return True
        return not isinstance(self._sessions.open_session(_REFERENCE, {}), Failure)

    def _measure_beside(self, assignment: Mapping[str, str], usual_secs: float) -> Measurement:
        start_secs = time.monotonic()
        deadline = start_secs + self._sessions.timeout_secs
        setup_secs = self._sessions.open_session(_CANDIDATE, assignment)
        if isinstance(setup_secs, Failure):
            return Measurement(failure=setup_secs, setup_secs=time.monotonic() - start_secs)
        count, most_blocks = self._protocol.plan_turns(usual_secs)
        secs: dict[str, list[float]] = {_REFERENCE: [], _CANDIDATE: []}
        for block in range(most_blocks):
            order = (_REFERENCE, _CANDIDATE) if block % 2 == 0 else (_CANDIDATE, _REFERENCE)
            begin_secs = time.monotonic()
            for label in order:
                left_secs = deadline - time.monotonic()
                steps = self._sessions.run_steps(label, count, timeout_secs=left_secs)
                if isinstance(steps, Failure):
                    self._sessions.close_session(_CANDIDATE)
                    slowness = [each / usual_secs for each in secs[_REFERENCE]]
                    return Measurement(
                        failure=steps,
                        setup_secs=time.monotonic() - start_secs,
                        drift=statistics.median(slowness) if slowness else 1.0,
                    )
                secs[label] += steps
            log_ratio, _ = log_speedup(secs[_REFERENCE], secs[_CANDIDATE])
            relative_secs = usual_secs * math.exp(-log_ratio)
            if self._is_worse(block + 1, relative_secs):
                break
            # Return the measured steps rather than risk a time-out in the next block.
            now_secs = time.monotonic()
            if now_secs + (now_secs - begin_secs) > deadline:
                break
        self._sessions.close_session(_CANDIDATE)
        return Measurement(
            tuple(secs[_CANDIDATE]),
            setup_secs=setup_secs,
            reference_secs=tuple(secs[_REFERENCE]),
            drift=statistics.median(secs[_CANDIDATE]) / relative_secs,
        )

    def _is_worse(self, blocks: int, step_secs: float) -> bool:
        """Says whether a placement is so much worse than the best that no block need follow."""
        protocol = self._protocol
        ratio = step_secs / (self._best_secs() or math.inf)
        return (blocks >= protocol.hopeless_blocks and ratio > protocol.hopeless_ratio) or (
            blocks >= protocol.worse_blocks and ratio > protocol.worse_ratio
        )


def _compute_slowness(measurement: Measurement, usual_secs: float) -> float:
    """Computes the step time of the original graph relative to its first measurement."""
    if measurement.reference_secs is None:
        return measurement.drift
    return statistics.median(measurement.reference_secs) / usual_secs
