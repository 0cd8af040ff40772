"""The confirmation that a placement is faster than the original, beyond the noise."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from graph_passes.util.json_records import read_record
from tf_placer.confirmation.round_statistics import (
    LEAST_ROUNDS,
    MOST_ROUNDS,
    Verdict,
    estimate,
    judge,
)
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.paired_steps import burst_steps, log_speedup
from tf_placer.environments.retry import run_with_retry
from tf_placer.interrupts import TimeLimitReached
from tf_placer.text.units import format_duration

__all__ = [
    "Comparison",
    "Confirmation",
    "ConfirmationProtocol",
    "SideBySide",
    "confirm",
    "survey",
]

# Memory may be too small for several sessions at once; then each label has processes of its own.
_MEMORY_FAILURES = (FailureKind.OUT_OF_MEMORY, FailureKind.WORKER_DIED)


@dataclasses.dataclass(frozen=True)
class ConfirmationProtocol:
    """The settings of rounds.

    A round consists of blocks, in each of which every label runs one burst of steps. Fresh
    processes differ by some percent, so a further round is soon worth more than further blocks.

    Attributes:
        min_blocks: blocks of a round at least.
        min_blocks_of_first_round: the same for the first round, for which there is no other round
            to tell whether the machine is disturbed.
        max_blocks: blocks of a round that stays uncertain.
        max_standard_error: of the logarithm of the speed-up; a round above it is uncertain.
        max_blocks_if_disturbed: blocks of a round that stays disturbed, because a disturbance may
            slow down one label more than another, and may pass.
        disturbed_ratio: a round is disturbed if the first quartile of a label's step times is this
            many times that of another round.
        min_burst_secs: duration of a burst at least; a burst has at least one step.
        warm_up_steps: steps of a session that do not count, after the first one at its opening.
        steps_alone: steps of a label that is measured in processes of its own.
        blocks_before_cut: blocks of the selection after which slow labels are left out.
        cut_ratio: a label is slow if its median is this many times that of the fastest.
        attempts_at_memory: attempts per round of a label that ran before and is out of memory now.
        grace_share: share of the time by which the rounds needed for a verdict may exceed it.
        min_hopeful_speedup: candidates with a lower speed-up in the selection get no round.
        reference_failures_to_win: a candidate that always runs wins after this many rounds in
            which the reference failed; a failure before the confirmation counts as one round.
    """

    min_blocks: int = 3
    min_blocks_of_first_round: int = 4
    max_blocks: int = 6
    max_standard_error: float = 0.04
    max_blocks_if_disturbed: int = 14
    disturbed_ratio: float = 1.4
    min_burst_secs: float = 0.05
    warm_up_steps: int = 1
    steps_alone: int = 12
    blocks_before_cut: int = 3
    cut_ratio: float = 1.3
    attempts_at_memory: int = 3
    grace_share: float = 0.1
    min_hopeful_speedup: float = 0.97
    reference_failures_to_win: int = 2


_PROTOCOL = ConfirmationProtocol()


class SideBySide(Protocol):
    """The part of a live environment that a confirmation needs."""

    def restart(self) -> None:
        """Starts fresh processes for the sessions to come."""
        ...

    def stop(self) -> None:
        """Stops the processes, whose work was canceled."""
        ...

    def open_session(self, label: str, assignment: Mapping[str, str]) -> float | Failure:
        """Opens and warms up a session with devices by operation name; {} for the original."""
        ...

    def run_steps(self, label: str, count: int) -> tuple[float, ...] | Failure:
        """Times steps of an open session, in seconds each."""
        ...


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The comparison of one candidate with the reference.

    Attributes:
        speedup: step time of the reference / of the candidate; None where one of the two has not
            run, or the candidate failed in some round.
        interval: 95 % confidence interval of the speed-up, valid although the test is repeated
            after every round; None after too few rounds.
        faster: whether the candidate is confirmed: the interval lies above 1, or the reference
            runs in no round and the candidate in all.
        reason: the reason, in a few words for users.
    """

    speedup: float | None
    interval: tuple[float, float] | None
    faster: bool
    reason: str


@dataclasses.dataclass(frozen=True)
class Confirmation:
    """The measurements and the verdict of a confirmation.

    Attributes:
        reference: the label that the candidates are compared with.
        selection: the rounds that chose the candidate: for each the measurement of each label, in
            the order they were loaded. Steps at one position ran shortly after each other.
        rounds: the rounds of the reference and the chosen candidate alone, which give the verdict.
        comparisons: for each label but the reference, its comparison. That of the chosen candidate
            uses `rounds`; the others use `selection`, which gives no verdict on them.
        best: label of the chosen candidate, or of the reference if no candidate was hopeful; None
            if every label has failed.
    """

    reference: str
    selection: tuple[Mapping[str, Measurement], ...]
    rounds: tuple[Mapping[str, Measurement], ...]
    comparisons: Mapping[str, Comparison]
    best: str | None

    def step_secs(self, label: str) -> float | None:
        """Computes the step time of a label in seconds; None if it never ran.

        The step time of the reference is the geometric mean over all rounds. The step time of a
        candidate is this mean divided by its speed-up, so that times and speed-ups agree.
        """
        everywhere = [*self.selection, *self.rounds]
        reference_secs = _mean_secs(everywhere, self.reference)
        comparison = self.comparisons.get(label)
        if reference_secs is not None and comparison is not None and comparison.speedup is not None:
            return reference_secs / comparison.speedup
        return _mean_secs(everywhere, label)

    def compute_selection_speedup(self, label: str) -> float | None:
        """Computes the speed-up of a label in the selection; None if it did not run there."""
        logs = _log_speedups(self.selection, self.reference, label)
        return math.exp(statistics.fmean(logs)) if logs else None

    @property
    def would_gain_by_rounds(self) -> bool:
        """True if further rounds of the chosen candidate may show that it is faster.

        False if there is a verdict, or if the rounds ended because the speed-ups vary so much that
        even all rounds would hardly show one.
        """
        if self.best is None or self.best == self.reference:
            return False
        logs = _log_speedups(self.rounds, self.reference, self.best)
        return bool(logs) and judge(logs) is Verdict.OPEN

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form: all fields, measurements included."""
        return {
            "reference": self.reference,
            "best": self.best,
            "confidence": 0.95,
            "comparisons": {
                label: dataclasses.asdict(comparison)
                for label, comparison in self.comparisons.items()
            },
            "selection": [_round_json(measurements) for measurements in self.selection],
            "rounds": [_round_json(measurements) for measurements in self.rounds],
        }

    @classmethod
    def from_json(cls, value: object) -> Confirmation:
        """Reads what `to_json` wrote, in this version or an earlier one.

        Raises:
            ValueError: the value is not a confirmation.
        """
        if isinstance(value, dict):  # Earlier versions had no rounds to choose.
            value = {"selection": [], **value}
        return read_record(cls, value, "confirmation")


def _round_json(measurements: Mapping[str, Measurement]) -> dict[str, Any]:
    return {label: measurement.to_json() for label, measurement in measurements.items()}


def _log_speedups(
    rounds: Sequence[Mapping[str, Measurement]], reference: str, label: str
) -> list[float]:
    """Computes a label's logarithmic speed-up in each round where it and the reference ran."""
    logs = []
    for measurements in rounds:
        if label not in measurements or reference not in measurements:
            continue
        of_reference = measurements[reference].step_secs
        of_label = measurements[label].step_secs
        if of_reference is not None and of_label is not None:
            count = min(len(of_reference), len(of_label))
            logs.append(log_speedup(of_reference[:count], of_label[:count])[0])
    return logs


def _mean_secs(rounds: Sequence[Mapping[str, Measurement]], label: str) -> float | None:
    logs = [
        math.log(measurements[label].median_secs or math.nan)
        for measurements in rounds
        if label in measurements and measurements[label].median_secs is not None
    ]
    return math.exp(statistics.fmean(logs)) if logs else None


def confirm(
    environment: SideBySide,
    candidates: Mapping[str, Mapping[str, str]],
    reference: str,
    *,
    hints: Mapping[str, float] | None = None,
    reference_failure: Failure | None = None,
    earlier_rounds: Mapping[str, Sequence[Mapping[str, Measurement]]] | None = None,
    max_secs: float = math.inf,
    most_rounds: int = MOST_ROUNDS,
    report: Callable[[str], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> Confirmation:
    """Measures placements side by side, in fresh processes, until there is a verdict.

    In a round all labels are loaded into one fresh set of processes and take turns in short
    bursts, in an order that is random at first and then balanced; `log_speedup` makes one estimate
    of it. With several candidates, one round with all of them chooses the fastest, and only this
    candidate has further rounds: the verdict uses rounds that had no part in the choice, so it is
    as reliable as with a single candidate. `judge` ends the rounds, in either direction.

    The probability of declaring a candidate `faster` that is not is at most 2.5 %, however many
    candidates there are. A candidate that fails loses, and the next best takes its place; if a
    process died, the round is first repeated once. A reference that fails is measured again: it is
    declared not to run only if it fails in every round. If labels do not fit into memory together,
    each is measured in processes of its own.

    Args:
        environment: runs the steps.
        candidates: for each label the full device name by operation name, the reference included.
        reference: the label to compare with, usually the original: {}.
        hints: logarithms of speed-ups that were measured before, by label: each counts like one
            more round of the selection.
        reference_failure: the failure of the reference before; None if it ran. Then one round in
            which it fails again is enough.
        earlier_rounds: by label, rounds of a confirmation that ended without a verdict. They count
            if the label is chosen again.
        max_secs: time limit in seconds; no round starts that would exceed it. The first round
            always runs; the rounds needed for a verdict may take a tenth longer.
        most_rounds: maximum number of rounds of a candidate.
        report: called with a line for users after each round.
        should_stop: called before each round once there are enough for a verdict; true ends the
            confirmation.
        seed: seed of the order of labels.
        clock: gives the time in seconds.

    Returns:
        All measurements, and the comparison of every candidate with the reference.

    Raises:
        KeyboardInterrupt: a measurement was canceled before there were enough rounds for a
            verdict. With enough rounds, the verdict uses these.
        TimeLimitReached: the time was over before the end of the first round. With a complete
        round, the
            result uses the rounds so far.
        ValueError: the reference is not among the candidates, or it is the only one.
    """
    _check(candidates, reference)
    confirming = _Confirming(
        environment, candidates, reference, hints or {}, max_secs, most_rounds, report, seed, clock
    )
    confirming.earlier_rounds = earlier_rounds or {}
    if reference_failure is not None:
        confirming.expect_failure_of_reference(reference_failure)
    return confirming.run(should_stop or (lambda: False))


def survey(
    environment: SideBySide,
    candidates: Mapping[str, Mapping[str, str]],
    reference: str,
    *,
    rounds: int = LEAST_ROUNDS,
    report: Callable[[str], None] | None = None,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> Confirmation:
    """Measures all placements in every round, for tables that compare them.

    Each interval is valid by itself; with many candidates the probability grows that one of them
    lies outside its interval. To choose a candidate, use `confirm`.

    Args:
        environment: runs the steps.
        candidates: for each label the full device name by operation name, the reference included.
        reference: the label to compare with.
        rounds: number of rounds; fewer than 4 give no intervals, more than 12 are no better.
        report: called with a line for users after each round.
        seed: seed of the order of labels.
        clock: gives the time in seconds.

    Returns:
        All measurements, and the comparison of every candidate with the reference; `best` is the
        fastest of all labels, None if the reference does not run.

    Raises:
        ValueError: the reference is not among the candidates, it is the only one, or there is no
            round.
    """
    _check(candidates, reference)
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    measuring = _Confirming(
        environment, candidates, reference, {}, math.inf, rounds, report, seed, clock
    )
    return measuring.survey(rounds)


def _check(candidates: Mapping[str, Mapping[str, str]], reference: str) -> None:
    if reference not in candidates:
        raise ValueError(f"the reference {reference!r} is not among {sorted(candidates)}")
    if len(candidates) < 2:
        raise ValueError(f"there is nothing to compare with {reference!r}")


class _Confirming:
    """A confirmation in progress."""

    def __init__(
        self,
        environment: SideBySide,
        candidates: Mapping[str, Mapping[str, str]],
        reference: str,
        hints: Mapping[str, float],
        max_secs: float,
        most_rounds: int,
        report: Callable[[str], None] | None,
        seed: int,
        clock: Callable[[], float],
    ) -> None:
        self.earlier_rounds: Mapping[str, Sequence[Mapping[str, Measurement]]] = {}
        self._environment = environment
        self._candidates = candidates
        self._reference = reference
        self._hints = hints
        self._most_rounds = min(most_rounds, MOST_ROUNDS)
        self._report = report or (lambda line: None)
        self._rng = np.random.default_rng(seed)
        self._clock = clock
        self._start_secs = clock()
        self._max_secs = max_secs
        self._round_secs = 0.0
        self._fit_together = True
        self._enough_failures = _PROTOCOL.reference_failures_to_win
        self._leaves_out = False
        self._failures: dict[str, str] = {}
        self._ran: set[str] = set()
        # By label, the first quartile of its step times in the least disturbed round.
        self._fast_secs: dict[str, float] = {}

    def expect_failure_of_reference(self, failure: Failure) -> None:
        """Counts a failure of the reference before the confirmation."""
        self._enough_failures = _PROTOCOL.reference_failures_to_win - 1
        # TensorFlow waits ten seconds for memory before it gives up.
        self._fit_together = failure.kind not in _MEMORY_FAILURES

    def run(self, should_stop: Callable[[], bool]) -> Confirmation:
        """Chooses a candidate and measures it until there is a verdict."""
        waiting = [label for label in self._candidates if label != self._reference]
        selection: list[dict[str, Measurement]] = []
        if len(waiting) > 1:
            selection.append(self._measure_round([self._reference, *waiting], leaves_out=True))
            self._report(f"choosing: {self._line(selection[0])}")
            waiting = self._rank(selection[0], waiting)
        comparisons = {
            label: self._compare_in_selection(selection, label)
            for label in self._candidates
            if label != self._reference
        }
        best: str | None = None
        if any(self._reference in m and m[self._reference].failure is None for m in selection):
            best = self._reference
        rounds: list[dict[str, Measurement]] = []
        while waiting:
            chosen = waiting.pop(0)
            hopeful = comparisons[chosen].speedup
            if selection and hopeful is not None and hopeful < _PROTOCOL.min_hopeful_speedup:
                break
            rounds = self._measure_rounds(chosen, should_stop)
            comparisons[chosen] = self._compare(rounds, chosen)
            if chosen not in self._failures:
                best = chosen
                break
            if best is None and any(
                m[self._reference].failure is None for m in rounds if self._reference in m
            ):
                best = self._reference
        return Confirmation(self._reference, tuple(selection), tuple(rounds), comparisons, best)

    def survey(self, rounds: int) -> Confirmation:
        """Measures all candidates that have not failed, in a number of rounds."""
        measured: list[dict[str, Measurement]] = []
        for number in range(1, rounds + 1):
            labels = [label for label in self._candidates if label not in self._failures]
            if len(labels) > 1 or not measured:
                measured.append(self._measure_round(labels))
                self._report(f"round {number}/{rounds}: {self._line(measured[-1])}")
        others = [label for label in self._candidates if label != self._reference]
        comparisons = {label: self._compare(measured, label) for label in others}
        speedups = {
            label: comparison.speedup
            for label, comparison in comparisons.items()
            if comparison.speedup is not None
        }
        if any(measurements[self._reference].failure is None for measurements in measured):
            speedups[self._reference] = 1.0
        best = max(speedups, key=lambda label: speedups[label], default=None)
        return Confirmation(self._reference, (), tuple(measured), comparisons, best)

    def _measure_rounds(
        self, chosen: str, should_stop: Callable[[], bool]
    ) -> list[dict[str, Measurement]]:
        """Measures the reference and one candidate until there is a verdict or no time."""
        rounds = [dict(each) for each in self.earlier_rounds.get(chosen, ())]
        if rounds:
            self._report(f"going on after {_count(len(rounds))} of an earlier confirmation")
        spent_secs: list[float] = []
        self._round_secs = 0.0
        while len(rounds) < self._most_rounds and chosen not in self._failures:
            if rounds and not self._rounds_left(len(rounds)):
                break
            if len(rounds) >= LEAST_ROUNDS and should_stop():
                break
            try:
                start_secs = self._clock()
                rounds.append(self._measure_round([self._reference, chosen]))
                spent_secs.append(self._clock() - start_secs)
                self._round_secs = statistics.fmean(spent_secs)
            except KeyboardInterrupt as reason:
                if len(rounds) < (1 if isinstance(reason, TimeLimitReached) else LEAST_ROUNDS):
                    raise
                self._environment.stop()
                break
            logs = self._logs(rounds, chosen)
            self._report(self._progress(rounds, chosen))
            if not logs and len(rounds) >= self._enough_failures:
                break  # The reference does not run.
            possible = len(logs) + self._rounds_left(len(rounds))
            if logs and judge(logs, min(possible, self._most_rounds)) is not Verdict.OPEN:
                break
        return rounds

    def _rounds_left(self, count: int) -> int:
        """Estimates for how many rounds there is time left, after `count` rounds."""

        def rounds_in(max_secs: float) -> int:
            left_secs = max_secs - (self._clock() - self._start_secs)
            return int(min(max(left_secs, 0.0) / max(self._round_secs, 1e-9), MOST_ROUNDS))

        # Exceed the time a little for these rounds: without them all others would be wasted.
        missing = max(LEAST_ROUNDS - count, 0)
        in_grace = min(rounds_in((1.0 + _PROTOCOL.grace_share) * self._max_secs), missing)
        return max(rounds_in(self._max_secs), in_grace)

    def _measure_round(
        self, labels: Sequence[str], *, leaves_out: bool = False
    ) -> dict[str, Measurement]:
        """Measures labels in one fresh set of processes, in random order.

        Args:
            labels: the labels to measure.
            leaves_out: whether slow labels are left out after a few blocks.
        """
        order = [labels[i] for i in self._rng.permutation(len(labels))]
        measured: dict[str, Measurement] | None = None
        self._leaves_out = leaves_out
        if self._fit_together:
            measured = self._measure_together(order)
        if measured is None:
            measured = {label: self._measure_alone(label) for label in order}
            # If only a candidate fails even alone, the remaining labels may still fit together. The
            # reference is in every round.
            self._fit_together = measured[self._reference].failure is None and any(
                m.failure is not None for m in measured.values()
            )
        for label, measurement in measured.items():
            failure = measurement.failure
            if failure is None:
                self._ran.add(label)
            elif label != self._reference:
                self._failures[label] = f"{failure.kind.value}: {failure.message}"
        return measured

    def _measure_together(self, order: Sequence[str]) -> dict[str, Measurement] | None:
        """Measures labels in turns; returns None if memory may be too small for that."""
        failed: dict[str, Measurement] = {}
        while True:
            running = [label for label in order if label not in failed]
            result = run_with_retry(functools.partial(self._take_turns, running), self._report)
            if not isinstance(result, tuple):
                return {label: (failed | result)[label] for label in order}
            label, failure = result
            if failure.kind in _MEMORY_FAILURES and len(running) > 1:
                return None
            # Start again without this label: its failure may have ended all sessions.
            failed[label] = Measurement(failure=failure)
            if len(failed) == len(order):
                return failed

    def _take_turns(self, labels: Sequence[str]) -> dict[str, Measurement] | tuple[str, Failure]:
        """Measures labels in one set of processes; returns the first failure, if any."""
        self._environment.restart()
        setup_secs: dict[str, float] = {}
        for label in labels:
            opened = self._environment.open_session(label, self._candidates[label])
            if isinstance(opened, Failure):
                return label, opened
            setup_secs[label] = opened
        # Warm-up steps do not count, but their times give the length of a burst.
        longest_secs = 0.0
        for label in labels:
            steps = self._environment.run_steps(label, _PROTOCOL.warm_up_steps)
            if isinstance(steps, Failure):
                return label, steps
            longest_secs = max(longest_secs, min(steps))
        count = burst_steps(longest_secs, _PROTOCOL.min_burst_secs)
        secs: dict[str, list[float]] = {label: [] for label in labels}
        order = list(labels)
        for block in range(_PROTOCOL.max_blocks_if_disturbed):
            if self._is_enough(block, secs, order):
                break
            for label in order:
                steps = self._environment.run_steps(label, count)
                if isinstance(steps, Failure):
                    return label, steps
                secs[label] += steps
            order = self._next_order(order, block, secs)
        for label in labels:
            fast_secs = _fast_secs(secs[label])
            self._fast_secs[label] = min(self._fast_secs.get(label, math.inf), fast_secs)
        return {
            label: Measurement(tuple(secs[label]), setup_secs=setup_secs[label]) for label in labels
        }

    def _is_enough(
        self, blocks: int, secs: Mapping[str, Sequence[float]], labels: Sequence[str]
    ) -> bool:
        """Returns whether a round needs no further block."""
        is_first = not self._fast_secs
        if blocks < (_PROTOCOL.min_blocks_of_first_round if is_first else _PROTOCOL.min_blocks):
            return False
        is_disturbed = any(
            _fast_secs(secs[label])
            > _PROTOCOL.disturbed_ratio * self._fast_secs.get(label, math.inf)
            for label in labels
        )
        if is_disturbed:
            return False
        # A selection gives no verdict, so that precision beyond the difference of fresh processes
        # would be wasted.
        is_selection = self._leaves_out
        return is_selection or blocks >= _PROTOCOL.max_blocks or self._is_certain(secs, labels)

    def _is_certain(self, secs: Mapping[str, Sequence[float]], labels: Sequence[str]) -> bool:
        """Returns whether the speed-up of every label is measured precisely enough."""
        if self._reference not in secs:
            return True
        errors = [
            log_speedup(secs[self._reference], secs[label])[1]
            for label in labels
            if label != self._reference
        ]
        return max(errors, default=0.0) <= _PROTOCOL.max_standard_error

    def _next_order(
        self, order: list[str], block: int, secs: Mapping[str, Sequence[float]]
    ) -> list[str]:
        """Reverses every second block, shuffles the others, and leaves out slow labels."""
        if self._leaves_out and block + 1 >= _PROTOCOL.blocks_before_cut:
            medians = {label: statistics.median(secs[label]) for label in order}
            fastest_secs = min(medians.values())
            order = [
                label
                for label in order
                if label == self._reference or medians[label] <= _PROTOCOL.cut_ratio * fastest_secs
            ]
        if block % 2 == 0:
            return order[::-1]
        return [order[i] for i in self._rng.permutation(len(order))]

    def _measure_alone(self, label: str) -> Measurement:
        """Measures a label in processes of its own.

        Operations run in no fixed order, so a step that needs nearly all of the memory may run out
        of it by chance: a label that has run before is tried again.
        """
        attempts = _PROTOCOL.attempts_at_memory if label in self._ran else 1
        while True:
            measured = run_with_retry(lambda: self._run_alone(label), self._report)
            attempts -= 1
            failure = measured.failure
            if failure is None or failure.kind is not FailureKind.OUT_OF_MEMORY or not attempts:
                return measured
            self._report(f"{label} ran before, and now is out of memory: trying once more")

    def _run_alone(self, label: str) -> Measurement:
        start_secs = self._clock()
        self._environment.restart()
        opened = self._environment.open_session(label, self._candidates[label])
        if isinstance(opened, Failure):
            return Measurement(failure=opened)
        begin_secs = self._clock()
        warm_up = self._environment.run_steps(label, _PROTOCOL.warm_up_steps)
        if isinstance(warm_up, Failure):
            return Measurement(failure=warm_up)
        steps = self._environment.run_steps(label, _PROTOCOL.steps_alone)
        if isinstance(steps, Failure):
            return Measurement(failure=steps)
        return Measurement(steps, setup_secs=begin_secs - start_secs)

    def _logs(self, rounds: Sequence[Mapping[str, Measurement]], label: str) -> list[float]:
        return _log_speedups(rounds, self._reference, label)

    def _rank(self, measurements: Mapping[str, Measurement], labels: Sequence[str]) -> list[str]:
        """Sorts the labels that ran, fastest first."""

        def log_secs(label: str) -> float:
            logs = self._logs([measurements], label)
            if not logs:
                return math.log(measurements[label].median_secs or math.inf)
            if label in self._hints:
                logs.append(self._hints[label])
            return -statistics.fmean(logs)

        ran = [label for label in labels if measurements[label].failure is None]
        return sorted(ran, key=log_secs)

    def _compare_in_selection(
        self, selection: Sequence[Mapping[str, Measurement]], label: str
    ) -> Comparison:
        if label in self._failures:
            return Comparison(None, None, False, f"failed ({self._failures[label]})")
        logs = self._logs(selection, label)
        if not logs:
            return Comparison(None, None, False, f"not compared with {self._reference}")
        speedup = estimate(logs).speedup
        return Comparison(speedup, None, False, f"about {speedup:.2f}x {self._reference}")

    def _compare(self, rounds: Sequence[Mapping[str, Measurement]], label: str) -> Comparison:
        if label in self._failures:
            number = sum(label in measurements for measurements in rounds)
            reason = f"failed in round {number} ({self._failures[label]})"
            return Comparison(None, None, False, reason)
        logs = self._logs(rounds, label)
        if not logs:
            failure = rounds[0][self._reference].failure
            assert failure is not None
            how = "does not run"
            if self._reference in self._ran:
                how = f"ran in the choice, and then in none of {_count(len(rounds))}"
            reason = f"{self._reference} {how} ({failure.kind.value}): {failure.message}"
            return Comparison(None, None, len(rounds) >= self._enough_failures, reason)
        found = estimate(logs)
        if found.interval is None:
            reason = (
                f"about {found.speedup:.2f}x {self._reference} in {len(logs)} of the "
                f"{LEAST_ROUNDS} rounds that are needed to tell"
            )
            return Comparison(found.speedup, None, False, reason)
        low, high = found.interval
        verdict = "faster" if low > 1 else "slower" if high < 1 else "no faster beyond the noise"
        reason = (
            f"{verdict}: {found.speedup:.3f}x {self._reference} "
            f"(95 % interval {low:.3f} to {high:.3f}, {_count(len(logs))})"
        )
        return Comparison(found.speedup, found.interval, low > 1, reason)

    def _progress(self, rounds: Sequence[Mapping[str, Measurement]], label: str) -> str:
        """Describes the state of the rounds of a candidate, for users."""
        logs = self._logs(rounds, label)
        if not logs:
            return f"{_count(len(rounds))}: {self._line(rounds[-1])}"
        found = estimate(logs)
        text = f"{_count(len(logs))}: {label} {found.speedup:.3f}x {self._reference}"
        if found.interval is None:
            text += f", at least {LEAST_ROUNDS} are needed"
        else:
            text += f", between {found.interval[0]:.3f} and {found.interval[1]:.3f}"
        most_secs = min(
            (self._most_rounds - len(logs)) * self._round_secs,
            self._max_secs - (self._clock() - self._start_secs),
        )
        return f"{text} | at most {format_duration(max(0.0, most_secs))} more"

    def _line(self, measurements: Mapping[str, Measurement]) -> str:
        """Describes the result of a round, for users."""
        parts = []
        for label in self._candidates:
            if label not in measurements or label == self._reference:
                continue
            logs = self._logs([measurements], label)
            failure = measurements[label].failure
            if failure is not None:
                parts.append(f"{label} {failure.kind.value}")
            else:
                parts.append(f"{label} {math.exp(logs[0]):.2f}x" if logs else f"{label} runs")
        text = ", ".join(parts)
        failure = measurements[self._reference].failure
        if failure is None:
            return f"{text} {self._reference}"
        return f"{text}, and {self._reference} does not run ({failure.kind.value})"


def _count(rounds: int) -> str:
    return "1 round" if rounds == 1 else f"{rounds} rounds"


def _fast_secs(secs: Sequence[float]) -> float:
    """Computes the first quartile of step times, which disturbances hardly change."""
    return sorted(secs)[len(secs) // 4]
