"""Tests of paired measurements of placements and the original, on a simulated machine."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.paired import PAIRED, PairedEnvironment, PairedProtocol

# Step times of the original on a quiet machine, so that a burst is one step.
_ORIGINAL_SECS = 0.25
# The number of blocks is the same for bursts of any length, except where a test is about it.
_TURNS = dataclasses.replace(PAIRED, most_long_blocks=PAIRED.most_blocks)
_SETUP_SECS, _ALONE_STEPS = 2.0, 9


class _Sessions:
    """A machine whose time passes only during its actions.

    An assignment has the seconds of a step ("secs", by default those of the original), failures
    ("opening", "steps", "always": a kind of failure) and the memory that it needs ("memory").

    Attributes:
        now_secs: the time.
        asked: the actions: "restart", "open LABEL", "steps LABEL COUNT", "close LABEL", "alone".
        slowness: factor of all step times, by the time.
        memory: memory of the machine.
        original: replaces the empty assignment of the original.
        deaths: moments of the next deaths of a process: "opening" a session, or in "steps".
    """

    def __init__(self, memory: int = 99) -> None:
        self.now_secs = 1000.0
        self.timeout_secs = 60.0
        self.asked: list[str] = []
        self.slowness: Callable[[float], float] = lambda now_secs: 1.0
        self.memory = memory
        self.original: Mapping[str, str] = {}
        self.deaths: list[str] = []
        self._open: dict[str, Mapping[str, str]] = {}

    def monotonic(self) -> float:
        return self.now_secs

    def open_session(self, label: str, assignment: Mapping[str, str]) -> float | Failure:
        self.asked.append(f"open {label}")
        assignment = assignment or self.original
        self.now_secs += _SETUP_SECS
        failure = self._failure(assignment, "opening")
        if failure is not None:
            return failure
        self._open[label] = assignment
        return _SETUP_SECS

    def has_session(self, label: str) -> bool:
        return label in self._open

    def run_steps(
        self, label: str, count: int, *, timeout_secs: float | None = None
    ) -> tuple[float, ...] | Failure:
        assert label in self._open, label
        self.asked.append(f"steps {label} {count}")
        failure = self._failure(self._open[label], "steps")
        if failure is not None:
            return failure
        steps = self._steps(self._open[label], count)
        limit_secs = self.timeout_secs if timeout_secs is None else timeout_secs
        if sum(steps) > limit_secs:
            self._open.clear()
            return Failure(FailureKind.TIMEOUT, f"more than {limit_secs:g} s")
        return steps

    def close_session(self, label: str) -> None:
        self.asked.append(f"close {label}")
        self._open.pop(label, None)

    def restart(self) -> None:
        self.asked.append("restart")
        self._open.clear()

    def stop(self) -> None:
        self.asked.append("stop")
        self._open.clear()

    def lose_all(self) -> None:
        """As if a process had died."""
        self._open.clear()

    def measure_assignment(self, assignment: Mapping[str, str]) -> Measurement:
        self.asked.append("alone")
        self.now_secs += _SETUP_SECS
        for what in ("opening", "steps"):
            failure = self._failure(assignment, what)
            if failure is not None:
                return Measurement(failure=failure, setup_secs=_SETUP_SECS)
        return Measurement(self._steps(assignment, _ALONE_STEPS), setup_secs=_SETUP_SECS)

    def _steps(self, assignment: Mapping[str, str], count: int) -> tuple[float, ...]:
        steps = []
        for _ in range(count):
            secs = float(assignment.get("secs", _ORIGINAL_SECS)) * self.slowness(self.now_secs)
            self.now_secs += secs
            steps.append(secs)
        return tuple(steps)

    def _failure(self, assignment: Mapping[str, str], what: str) -> Failure | None:
        if self.deaths and self.deaths[0] == what:
            self.deaths.pop(0)
            self._open.clear()
            return Failure(FailureKind.WORKER_DIED, f"died in {what}")
        kind = assignment.get(what)
        used = sum(int(each.get("memory", 1)) for each in self._open.values())
        if assignment not in self._open.values():
            used += int(assignment.get("memory", 1))
        if what == assignment.get("fills memory", "opening") and used > self.memory:
            kind = "out_of_memory"
        if kind is None:
            return None
        if kind == "out_of_memory":
            # As the real sessions do.
            self._open.clear()
        return Failure(FailureKind(kind), f"made up in {what}")


class PairedEnvironmentTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.sessions = _Sessions()
        self.best_secs: float | None = None
        self.lines: list[str] = []
        #: Assignments by the first number of a placement.
        self.assignments: list[Mapping[str, str]] = []
        # Nothing in the module may take the real time.
        self.enterContext(
            mock.patch("tf_placer.environments.paired.time", mock.Mock(spec=["monotonic"]))
        ).monotonic.side_effect = lambda: self.sessions.monotonic()

    def environment(
        self, *, protocol: PairedProtocol = _TURNS, reference_secs: float | None = None
    ) -> PairedEnvironment:
        return PairedEnvironment(
            self.sessions,
            lambda row: self.assignments[row[0]],
            protocol=protocol,
            reference_secs=reference_secs,
            best_secs=lambda: self.best_secs,
            report=self.lines.append,
        )

    def begin(self, **options) -> PairedEnvironment:
        """Makes an environment that has measured the original."""
        environment = self.environment(**options)
        self.assertIsNone(environment.measure_original().failure)
        self.sessions.asked.clear()
        return environment

    def measure(self, environment: PairedEnvironment, **assignment) -> Measurement:
        self.assignments = [{key.replace("_", " "): str(assignment[key]) for key in assignment}]
        (measurement,) = environment.measure(np.array([[0, 7]], np.int32))
        return measurement

    def labels(self) -> list[str]:
        """Lists the sessions whose steps ran, in order."""
        return [asked.split()[1] for asked in self.sessions.asked if asked.startswith("steps")]

    # The original.

    def test_the_original_sets_the_reference_and_stays_open(self):
        environment = self.environment()
        self.assertIsNone(environment.reference_secs)
        # Steps of fresh processes are slow, and do not count.
        self.sessions.slowness = lambda now_secs: 3.0 if now_secs < 1004.9 else 1.0
        measurement = environment.measure_original()
        self.assertEqual(measurement.step_secs, (_ORIGINAL_SECS,) * 6)
        self.assertEqual(measurement.drift, 1.0)
        self.assertIsNone(measurement.reference_secs)
        self.assertEqual(environment.reference_secs, _ORIGINAL_SECS)
        self.assertEqual(
            self.sessions.asked, ["open original", "steps original 4", "steps original 6"]
        )
        self.assertTrue(self.sessions.has_session("original"))
        # All that it took.
        self.assertEqual(measurement.total_secs, self.sessions.now_secs - 1000.0)

    def test_the_reference_is_the_median(self):
        environment = self.environment()
        self.sessions.slowness = lambda now_secs: 9.0 if 1004.0 <= now_secs < 1006.0 else 1.0
        environment.measure_original()
        self.assertEqual(environment.reference_secs, _ORIGINAL_SECS)

    def test_the_original_runs_as_many_steps_as_in_a_trial(self):
        for secs, steps in ((0.004, 18), (0.0001, 150)):
            self.sessions.original = {"secs": str(secs)}
            # Not as many as the first ones would make.
            begin_secs = self.sessions.now_secs + _SETUP_SECS
            self.sessions.slowness = lambda now_secs, end_secs=begin_secs + 2.5 * secs: (
                2.0 if now_secs < end_secs else 1.0
            )
            self.assertLen(self.environment().measure_original().step_secs, steps)

    @parameterized.product(kind=list(FailureKind), what=["opening", "steps"])
    def test_placements_are_measured_alone_where_the_original_does_not_run(self, kind, what):
        self.sessions.original = {what: kind.value}
        environment = self.environment()
        measurement = environment.measure_original()
        self.assertEqual(measurement.failure.kind, kind)
        self.assertEqual(measurement.setup_secs, _SETUP_SECS)
        self.assertIsNone(environment.reference_secs)
        # Nor does its session take any memory from them.
        self.assertFalse(self.sessions.has_session("original"))
        self.sessions.asked.clear()
        measurement = self.measure(environment, secs=0.5)
        self.assertEqual(measurement.step_secs, (0.5,) * _ALONE_STEPS)
        self.assertIsNone(measurement.reference_secs)
        self.assertEqual(self.sessions.asked, ["alone"])

    def test_an_original_that_fails_after_some_steps_is_closed(self):
        self.sessions.timeout_secs = 1.2
        environment = self.environment()
        measurement = environment.measure_original()
        self.assertEqual(measurement.failure.kind, FailureKind.TIMEOUT)
        self.assertIsNone(environment.reference_secs)
        self.assertFalse(self.sessions.has_session("original"))

    # Taking turns.

    def test_the_two_take_turns_and_swap_the_order(self):
        measurement = self.measure(self.begin(), secs=0.2)
        self.assertIsNone(measurement.failure)
        block = ["original", "candidate"]
        self.assertEqual(self.labels(), (block + block[::-1]) * 3)
        self.assertEqual(self.sessions.asked[0], "open candidate")
        self.assertEqual(self.sessions.asked[-1], "close candidate")
        self.assertTrue(self.sessions.has_session("original"))

    @parameterized.parameters((0.25, 1), (0.004, 3), (0.0001, 25))
    def test_a_turn_is_a_burst_of_steps(self, original_secs, burst):
        self.sessions.original = {"secs": str(original_secs)}
        measurement = self.measure(self.begin(), secs=original_secs / 2.0)
        counts = {asked.split()[2] for asked in self.sessions.asked if asked.startswith("steps")}
        self.assertEqual(counts, {str(burst)})
        self.assertLen(measurement.step_secs, 6 * burst)
        self.assertLen(measurement.reference_secs, 6 * burst)

    def test_a_quiet_machine_has_no_drift(self):
        environment = self.begin()
        start_secs = self.sessions.now_secs
        measurement = self.measure(environment, secs=0.2)
        self.assertEqual(measurement.step_secs, (0.2,) * 6)
        self.assertEqual(measurement.reference_secs, (_ORIGINAL_SECS,) * 6)
        self.assertAlmostEqual(measurement.drift, 1.0, places=12)
        self.assertAlmostEqual(measurement.median_secs, 0.2, places=12)
        self.assertEqual(measurement.setup_secs, _SETUP_SECS)
        self.assertAlmostEqual(measurement.total_secs, self.sessions.now_secs - start_secs)

    def test_a_machine_that_is_slow_in_a_trial_does_not_change_what_comes_out(self):
        environment = self.begin()
        quiet = self.measure(environment, secs=0.2)
        self.sessions.slowness = lambda now_secs: 2.0
        slow = self.measure(environment, secs=0.2)
        self.assertEqual(slow.step_secs, (0.4,) * 6)
        self.assertEqual(slow.reference_secs, (0.5,) * 6)
        self.assertAlmostEqual(slow.drift, 2.0, places=12)
        self.assertAlmostEqual(slow.median_secs, quiet.median_secs, places=12)
        # The same placement on a machine that is quiet again.
        self.sessions.slowness = lambda now_secs: 1.0
        self.assertAlmostEqual(self.measure(environment, secs=0.2).median_secs, 0.2, places=12)

    def test_a_slow_phase_in_a_trial_does_not_change_what_comes_out(self):
        environment = self.begin()
        begin_secs = self.sessions.now_secs + _SETUP_SECS + 1.0
        self.sessions.slowness = lambda now_secs: (
            3.0 if begin_secs <= now_secs < begin_secs + 2.0 else 1.0
        )
        measurement = self.measure(environment, secs=0.2)
        self.assertBetween(sum(secs == 0.2 for secs in measurement.step_secs), 4, 7)
        self.assertAlmostEqual(measurement.median_secs, 0.2, places=12)

    def test_slow_steps_of_the_placement_alone_do_not_change_what_comes_out(self):
        environment = self.begin()
        is_slow = [True, False, True, True, False, True, False, True]

        def slowness(now_secs: float) -> float:
            labels = self.labels()
            return (
                3.0 if labels[-1] == "candidate" and is_slow[labels.count("candidate") - 1] else 1.0
            )

        self.sessions.slowness = slowness
        measurement = self.measure(environment, secs=0.2)
        self.assertAlmostEqual(np.median(measurement.step_secs), 0.6)
        self.assertAlmostEqual(measurement.median_secs, 0.2, places=12)
        self.assertAlmostEqual(measurement.drift, 3.0, places=12)

    def test_a_machine_that_becomes_slower_and_slower_hardly_changes_what_comes_out(self):
        environment = self.begin()
        start_secs = self.sessions.now_secs
        self.sessions.slowness = lambda now_secs: math.exp((now_secs - start_secs) / 40.0)
        measurement = self.measure(environment, secs=0.2)
        self.assertGreater(measurement.drift, 1.05)
        # From one of a pair to the other it becomes slower by less than 1 %, now for the one and
        # now for the other.
        self.assertAlmostEqual(measurement.median_secs, 0.2, delta=0.2 * 0.01)

    # Processes that die or become slow.

    @parameterized.parameters("opening", "steps")
    def test_a_placement_whose_process_died_is_measured_once_more(self, what):
        environment = self.begin()
        self.sessions.deaths = [what]
        measurement = self.measure(environment, secs=0.2)
        self.assertIsNone(measurement.failure)
        self.assertEqual(measurement.reference_secs, (_ORIGINAL_SECS,) * 6)
        self.assertEqual(self.sessions.asked.count("open candidate"), 2)
        self.assertEqual(self.sessions.asked.count("open original"), 1)
        self.assertLen(self.lines, 1)
        self.assertStartsWith(self.lines[0], f"died in {what}: measuring the placement once more")

    def test_at_the_second_death_it_fails(self):
        environment = self.begin()
        self.sessions.deaths = ["steps", "steps"]
        failure = self.measure(environment, secs=0.2).failure
        self.assertEqual(failure.kind, FailureKind.WORKER_DIED)
        self.assertEqual(failure.message, "at the second try, too: died in steps")
        self.assertEqual(self.sessions.asked.count("open candidate"), 2)
        # The next one is measured as ever.
        self.assertLen(self.measure(environment, secs=0.2).reference_secs, 6)

    def test_the_original_is_measured_once_more_too(self):
        for deaths, runs in ((["opening"], True), (["steps"], True), (["steps", "opening"], False)):
            self.sessions.deaths = list(deaths)
            environment = self.environment()
            self.assertEqual(environment.measure_original().failure is None, runs, deaths)
            self.assertEqual(environment.reference_secs is not None, runs, deaths)

    def test_a_process_that_has_become_slow_is_replaced(self):
        environment = self.begin()
        # Until the processes are replaced.
        self.sessions.slowness = lambda now_secs: 1.0 if "stop" in self.sessions.asked else 4.0
        # The original is on the slow process, and the placement is not.
        measurement = self.measure(environment, secs=0.2)
        self.assertEqual(measurement.step_secs, (0.2,) * 6)
        self.assertAlmostEqual(measurement.median_secs, 0.2)
        self.assertEqual(self.sessions.asked.count("stop"), 1)
        self.assertLen(self.lines, 1)
        self.assertRegex(
            self.lines[0], "takes 4.0 times as long as at first: measuring the placement once more"
        )

    def test_processes_of_a_slow_computer_are_replaced_only_once(self):
        environment = self.begin()
        self.sessions.slowness = lambda now_secs: 4.0
        for _ in range(3):
            self.assertAlmostEqual(self.measure(environment, secs=0.2).median_secs, 0.2)
        self.assertEqual(self.sessions.asked.count("stop"), 1)
        self.assertLen(self.lines, 2)
        self.assertIn("something else slows the computer down", self.lines[1])
        # When it was quick again, all begins anew.
        self.sessions.slowness = lambda now_secs: 1.0
        self.measure(environment, secs=0.2)
        self.sessions.slowness = lambda now_secs: 4.0
        self.measure(environment, secs=0.2)
        self.assertEqual(self.sessions.asked.count("stop"), 2)

    def test_a_time_out_of_slow_processes_does_not_count(self):
        environment = self.begin()
        self.sessions.timeout_secs = 10.0
        self.sessions.slowness = lambda now_secs: 1.0 if "stop" in self.sessions.asked else 20.0
        self.assertAlmostEqual(self.measure(environment, secs=0.5).median_secs, 0.5)
        # A slow placement ends its burst early.
        self.sessions.slowness = lambda now_secs: 1.0
        self.sessions.asked.clear()
        failure = self.measure(environment, secs=9.0).failure
        self.assertEqual(failure.kind, FailureKind.TIMEOUT)
        self.assertNotIn("stop", self.sessions.asked)

    # When a placement is left.

    @parameterized.parameters(
        # Far slower, slower, hardly slower, as fast, and faster than the best so far.
        (1.5, 2),
        (20.0, 2),
        (1.3, 3),
        (1.12, 3),
        (1.05, 6),
        (1.0, 6),
        (0.5, 6),
    )
    def test_the_worse_a_placement_is_the_sooner_it_is_left(self, ratio, blocks):
        environment = self.begin()
        self.best_secs = 0.2
        for slowness in (1.0, 2.5):
            self.sessions.slowness = lambda now_secs, factor=slowness: factor
            measurement = self.measure(environment, secs=0.2 * ratio)
            self.assertLen(measurement.step_secs, blocks)
            self.assertLen(measurement.reference_secs, blocks)
            self.assertAlmostEqual(measurement.median_secs, 0.2 * ratio, places=12)
            self.assertFalse(self.sessions.has_session("candidate"))

    def test_the_protocol_sets_the_numbers_of_blocks(self):
        protocol = PairedProtocol(1, 3.0, 2, 2.0, 7, 5)
        environment = self.begin(protocol=protocol)
        self.best_secs = 0.1
        for secs, blocks in ((0.35, 1), (0.25, 2), (0.15, 5)):
            self.assertLen(self.measure(environment, secs=secs).step_secs, blocks)

    @parameterized.parameters((0.13, 4), (0.12, 6), (2.0, 4), (0.001, 6 * 10))
    def test_long_steps_have_fewer_blocks(self, original_secs, steps):
        self.sessions.original = {"secs": str(original_secs)}
        environment = self.environment(protocol=PAIRED)
        self.assertLen(environment.measure_original().step_secs, steps)
        # The length of the original counts, so that both run as often.
        measurement = self.measure(environment, secs=original_secs / 2.0)
        self.assertLen(measurement.step_secs, steps)
        self.assertAlmostEqual(measurement.median_secs, original_secs / 2.0)

    def test_without_any_best_no_placement_is_left(self):
        self.assertLen(self.measure(self.begin(), secs=20.0 * _ORIGINAL_SECS).step_secs, 6)

    def test_reads_the_best_step_time_for_each_placement(self):
        environment = self.begin()
        for best_secs, blocks in ((0.25, 6), (0.1, 2), (0.22, 3)):
            self.best_secs = best_secs
            self.assertLen(self.measure(environment, secs=0.25).step_secs, blocks)

    # Time.

    def test_a_placement_has_one_time_limit_for_all(self):
        environment = self.begin()
        self.sessions.timeout_secs = 10.0
        measurement = self.measure(environment, secs=9.0)
        self.assertEqual(measurement.failure.kind, FailureKind.TIMEOUT)
        # Setting up and the first step of the original had been part of it.
        left_secs = 10.0 - _SETUP_SECS - _ORIGINAL_SECS
        self.assertIn(f"{left_secs:g} s", measurement.failure.message)
        self.assertEqual(self.sessions.asked.count("alone"), 0)

    def test_a_placement_that_would_not_end_in_time_ends_with_what_was_measured(self):
        environment = self.begin()
        # A block takes 1.25 s.
        for timeout_secs, blocks in ((2.0 + 6 * 1.25, 6), (6.6, 3), (4.0, 1)):
            self.sessions.timeout_secs = timeout_secs
            measurement = self.measure(environment, secs=1.0)
            self.assertEqual(measurement.step_secs, (1.0,) * blocks)
            self.assertAlmostEqual(measurement.median_secs, 1.0, places=12)
            self.assertFalse(self.sessions.has_session("candidate"))

    # Failures.

    @parameterized.product(
        kind=[
            kind
            for kind in FailureKind
            if kind not in (FailureKind.OUT_OF_MEMORY, FailureKind.WORKER_DIED)
        ],
        what=["opening", "steps"],
    )
    def test_a_failure_is_a_measurement_and_not_repeated(self, kind, what):
        environment = self.begin()
        measurement = self.measure(environment, **{what: kind.value})
        self.assertEqual(measurement.failure, Failure(kind, f"made up in {what}"))
        self.assertNotIn("alone", self.sessions.asked)
        self.assertNotIn("restart", self.sessions.asked)
        self.assertEqual(self.sessions.asked.count("open candidate"), 1)
        self.assertFalse(self.sessions.has_session("candidate"))
        # The next one is measured as ever.
        self.sessions.asked.clear()
        self.assertLen(self.measure(environment, secs=0.2).reference_secs, 6)
        self.assertEqual(self.sessions.asked[0], "open candidate")

    @parameterized.parameters("opening", "steps")
    def test_measures_all_placements_alone_once_one_fits_only_alone(self, when):
        self.sessions = _Sessions(memory=2)
        environment = self.begin()
        self.assertLen(self.measure(environment, secs=0.2).reference_secs, 6)
        self.sessions.asked.clear()
        big = self.measure(environment, secs=0.2, memory=2, fills_memory=when)
        self.assertEqual(big.step_secs, (0.2,) * _ALONE_STEPS)
        self.assertIsNone(big.reference_secs)
        self.assertEqual(big.drift, 1.0)
        # In fresh processes without the original.
        self.assertEqual(self.sessions.asked[-2:], ["restart", "alone"])
        self.assertFalse(self.sessions.has_session("original"))
        # All that follow are compared with it: they are measured as it was.
        self.sessions.asked.clear()
        for _ in range(2):
            small = self.measure(environment, secs=0.2)
            self.assertIsNone(small.reference_secs)
        self.assertEqual(self.sessions.asked, ["alone", "alone"])

    def test_a_placement_that_does_not_fit_even_alone_leaves_later_ones_paired(self):
        self.sessions = _Sessions(memory=2)
        environment = self.begin()
        huge = self.measure(environment, memory=3)
        self.assertEqual(huge.failure.kind, FailureKind.OUT_OF_MEMORY)
        self.assertEqual(self.sessions.asked, ["open candidate", "restart", "alone"])
        self.sessions.asked.clear()
        self.assertLen(self.measure(environment, secs=0.2).reference_secs, 6)
        self.assertEqual(self.sessions.asked[:2], ["open original", "open candidate"])

    # The session of the original.

    def test_a_lost_session_of_the_original_is_opened_again(self):
        environment = self.begin()
        self.sessions.lose_all()
        for opened in (["open original"], []):
            self.sessions.asked.clear()
            self.assertLen(self.measure(environment, secs=0.2).reference_secs, 6)
            self.assertEqual(
                list(itertools.takewhile(lambda asked: "steps" not in asked, self.sessions.asked)),
                [*opened, "open candidate"],
            )
        self.assertEqual(environment.reference_secs, _ORIGINAL_SECS)

    def test_a_resumed_search_opens_the_session_of_the_original(self):
        # The machine is twice as slow as it was then.
        self.sessions.slowness = lambda now_secs: 2.0
        environment = self.environment(reference_secs=_ORIGINAL_SECS)
        measurement = self.measure(environment, secs=0.2)
        self.assertEqual(self.sessions.asked[:2], ["open original", "open candidate"])
        self.assertAlmostEqual(measurement.drift, 2.0, places=12)
        self.assertAlmostEqual(measurement.median_secs, 0.2, places=12)
        self.assertEqual(environment.reference_secs, _ORIGINAL_SECS)

    def test_a_placement_is_measured_alone_while_the_original_cannot_be_opened_again(self):
        environment = self.environment(reference_secs=_ORIGINAL_SECS)
        self.sessions.original = {"opening": "timeout"}
        self.assertIsNone(self.measure(environment, secs=0.2).reference_secs)
        self.assertEqual(self.sessions.asked, ["open original", "alone"])
        self.sessions.original = {}
        self.assertLen(self.measure(environment, secs=0.2).reference_secs, 6)

    def test_placements_are_measured_one_by_one(self):
        environment = self.begin()
        self.assignments = [{"secs": "0.2"}, {"opening": "runtime_error"}, {"secs": "0.5"}]
        measurements = environment.measure(np.array([[2], [1], [0]], np.int32))
        self.assertAlmostEqual(measurements[0].median_secs, 0.5, places=12)
        self.assertEqual(measurements[1].failure.kind, FailureKind.RUNTIME_ERROR)
        self.assertAlmostEqual(measurements[2].median_secs, 0.2, places=12)
        self.assertEmpty(environment.measure(np.zeros([0, 1], np.int32)))


if __name__ == "__main__":
    absltest.main()
