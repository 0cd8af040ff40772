"""Tests of the choice of finalists and of the winner."""

from __future__ import annotations

import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.scripted import Script, confirmation, trial
from tf_placer.confirmation.finalists import (
    choose_finalists,
    choose_winner,
    drop_slow_finalists,
    explain_no_finalists,
)
from tf_placer.confirmation.outcome import Outcome
from tf_placer.environments.environment import Failure, FailureKind, Measurement

_BASELINES = ("single_device", "expert")


def make_failed_trial(index, assignment, kind, repeats=None):
    measurement = Measurement(failure=Failure(kind, f"failure {index}"))
    return dataclasses.replace(trial(index, assignment, repeats=repeats), measurement=measurement)


_OOM, _TIMEOUT = FailureKind.OUT_OF_MEMORY, FailureKind.TIMEOUT


class ChooseFinalistsTest(absltest.TestCase):
    def test_finalists_are_the_best_of_each_baseline_and_the_two_fastest_others(self):
        trials = [
            trial(0, None, 0.1),
            trial(1, [0, 0], 0.3, "single_device"),
            trial(2, [1, 1], 0.2, "single_device"),
            trial(3, [0, 1], 0.09, "expert"),
            trial(4, [1, 0], 0.07),
            trial(5, [1, 0], 0.07, repeats=4),
            trial(6, [0, 2], 0.06),
            trial(7, [2, 0], 0.08),
            trial(8, [2, 2], None),
        ]
        finalists = choose_finalists(trials, _BASELINES)
        self.assertEqual(
            {label: chosen.index for label, chosen in finalists.items()},
            {"original": 0, "single_device": 2, "expert": 3, "random": 6, "random (2)": 4},
        )

    def test_an_original_that_fails_is_a_finalist(self):
        finalists = choose_finalists([trial(0, None, None), trial(1, [0], 0.1)], _BASELINES)
        self.assertEqual(list(finalists), ["original", "random"])

    def test_there_are_no_finalists_if_no_placement_ran(self):
        self.assertEqual(choose_finalists([trial(0, None)], _BASELINES), {})
        self.assertEqual(choose_finalists([trial(0, None), trial(1, [0], None)], _BASELINES), {})
        self.assertEqual(choose_finalists([], _BASELINES), {})


class DropSlowFinalistsTest(absltest.TestCase):
    def hopeful(self, original: float | None, **secs: float) -> list[str]:
        finalists = {"original": trial(0, None, original)}
        for index, (label, each) in enumerate(secs.items(), 1):
            finalists[label] = trial(index, [0, 1], each, label)
        return list(drop_slow_finalists(finalists))

    def test_keeps_finalists_near_the_fastest_and_not_slower_than_the_original(self):
        found = self.hopeful(1.0, single_device=1.0, expert=0.85, auto=0.8, other=0.93)
        self.assertEqual(found, ["original", "expert", "auto"])

    def test_keeps_the_original_alone_if_all_others_are_slower(self):
        self.assertEqual(self.hopeful(1.0, expert=1.01, auto=1.2), ["original"])
        self.assertEqual(self.hopeful(1.0, expert=0.99, auto=1.01), ["original", "expert"])

    def test_keeps_the_fastest_if_the_original_failed(self):
        self.assertEqual(
            self.hopeful(None, expert=1.1, auto=1.0, other=1.2)[1:], ["expert", "auto"]
        )


class ChooseWinnerTest(absltest.TestCase):
    def choose(self, confirmed, values=None, mixed_devices=False, tensors=(), by_chance=()):
        script = Script() if values is None else Script(values=values)
        candidates = {label: {"op": label} for label in confirmed.comparisons}
        environment = script.environment("", None, None, None, meta_optimizer=True)
        return choose_winner(
            environment,
            confirmed,
            candidates,
            tensors=tensors,
            mixed_devices=mixed_devices,
            by_chance=by_chance,
        )

    def test_the_fastest_that_is_faster_beyond_the_noise_wins(self):
        confirmed = confirmation({"expert": 1.2, "random": 1.5, "random (2)": 1.4})
        self.assertEqual(self.choose(confirmed), (Outcome.FASTER, "random", None))

    def test_slower_candidates_do_not_win(self):
        for speedup in (0.9, 0.9999, None):
            with self.subTest(speedup=speedup):
                outcome = self.choose(confirmation({"random": speedup}))
                self.assertEqual(outcome, (Outcome.NOT_FASTER, None, None))

    def test_candidates_within_the_noise_do_not_win(self):
        confirmed = confirmation({"random": 1.05}, noise=0.3)
        self.assertGreater(confirmed.comparisons["random"].speedup, 1)
        self.assertEqual(self.choose(confirmed), (Outcome.NOT_FASTER, None, None))

    def test_a_candidate_that_runs_wins_over_an_original_that_does_not(self):
        confirmed = confirmation({"expert": 1.2, "random": 1.5}, original=None)

        self.assertEqual(self.choose(confirmed), (Outcome.FASTER, "random", None))

        def fail_alone(assignment):
            # The values that stand in for those of the original are of the CPU alone.
            return Script().values(assignment) if assignment else failure

        failure = Failure(FailureKind.RUNTIME_ERROR, "no kernel")
        not_compared = "what the graphs compute could not be compared: no kernel"
        found = self.choose(confirmed, fail_alone)
        self.assertEqual(found, (Outcome.FASTER, "random", not_compared))

    def test_a_candidate_that_alone_runs_must_compute_what_the_cpu_computes(self):
        confirmed = confirmation({"random": 1.5}, original=None)

        def values(assignment):
            return {"loss:0@1": np.float32([2 if assignment else 1])}

        outcome, label, note = self.choose(confirmed, values)
        self.assertEqual((outcome, label), (Outcome.DIFFERENT_VALUES, None))
        self.assertIn("random does not compute the same", note)

    def test_one_round_in_which_the_original_did_not_run_confirms_nothing(self):
        confirmed = confirmation({"random": 1.5}, original=None, max_secs=0.0)
        outcome, label, note = self.choose(confirmed)
        self.assertEqual((outcome, label), (Outcome.NOT_CONFIRMED, None))
        self.assertRegex(note, "random ran, and original does not run")

    def test_a_candidate_with_different_values_does_not_win(self):
        def values(assignment):
            return {"loss:0@1": np.float32([2 if "random" in assignment.values() else 1])}

        outcome, label, note = self.choose(confirmation({"random": 1.5}), values)
        self.assertEqual((outcome, label), (Outcome.DIFFERENT_VALUES, None))
        self.assertRegex(note, "random does not compute the same: 'loss:0@1' differs")

    def test_a_graph_that_never_computes_the_same_twice_cannot_be_compared(self):
        random = np.random.default_rng(0)
        outcome, label, note = self.choose(
            confirmation({"random": 1.5}), lambda _: {"loss:0@1": random.normal(size=3)}
        )
        self.assertEqual((outcome, label), (Outcome.FASTER, "random"))
        self.assertIn("two runs of the original", note)

    def test_a_few_variables_may_differ_where_devices_round_differently(self):
        def values(assignment):
            off = np.float32(0.01 if "random" in assignment.values() else 0)
            same = {"loss:0@1": np.ones(1), "kernel": np.ones(3), "slot": np.ones(3)}
            return {**same, "bias": np.full(3, off)}

        confirmed = confirmation({"random": 1.5})
        self.assertEqual(self.choose(confirmed, values)[0], Outcome.DIFFERENT_VALUES)
        outcome, label, note = self.choose(confirmed, values, mixed_devices=True)
        self.assertEqual((outcome, label), (Outcome.FASTER, "random"))
        self.assertIn("only variables differ, as by rounding: 'bias'", note)

    def test_neither_fetches_nor_most_variables_may_differ_anywhere(self):
        def values(name):
            def of(assignment):
                other = 2.0 if "random" in assignment.values() else 1.0
                same = {"loss:0@1": np.ones(1), "a": np.ones(1), "b": np.ones(1), "c": np.ones(1)}
                return {**same, **dict.fromkeys(name.split(), np.full(1, other))}

            return of

        for names in ("loss:0@1", "a b"):
            outcome, *_ = self.choose(confirmation({"random": 1.5}), values(names), True)
            self.assertEqual(outcome, Outcome.DIFFERENT_VALUES)

    def test_reports_the_first_tensor_that_differs(self):
        def values(assignment):
            other = 2.0 if "random" in assignment.values() else 1.0
            # "late" comes after "early"; "first" differs in the second step only.
            off = {"loss:0@1": other, "late:0@1": other, "early:0@1": other, "first:0@2": other}
            same = {"first:0@1": 1.0, "late:0@2": 1.0, "early:0@2": 1.0}
            return {name: np.full(1, value) for name, value in {**off, **same}.items()}

        outcome, _, note = self.choose(
            confirmation({"random": 1.5}), values, tensors=["first:0", "early:0", "late:0"]
        )
        self.assertEqual(outcome, Outcome.DIFFERENT_VALUES)
        self.assertEndsWith(note, "the first to differ is 'early:0' in step 1")

    def test_values_that_depend_on_chance_may_differ(self):
        def values(assignment):
            other = 2.0 if "random" in assignment.values() else 1.0
            return {name: np.full(1, other) for name in ("loss:0@1", "read:0@1")}

        for by_chance, tensors, expected in (
            (("read", "loss"), ["read:0", "loss:0"], Outcome.FASTER),
            # The first difference is not from such an update, or is unknown.
            (("loss",), ["read:0", "loss:0"], Outcome.DIFFERENT_VALUES),
            (("read", "loss"), [], Outcome.DIFFERENT_VALUES),
            ((), ["read:0", "loss:0"], Outcome.DIFFERENT_VALUES),
        ):
            outcome, winner, note = self.choose(
                confirmation({"random": 1.5}), values, tensors=tensors, by_chance=by_chance
            )
            self.assertEqual(outcome, expected)
            self.assertEqual(winner, "random" if expected is Outcome.FASTER else None)
            self.assertIn("leaves to chance" if winner else "does not compute the same", note)

    def test_reports_a_failed_comparison_of_values(self):
        failure = Failure(FailureKind.TIMEOUT, "too slow")
        outcome, label, note = self.choose(confirmation({"random": 1.5}), lambda _: failure)
        self.assertEqual((outcome, label), (Outcome.FASTER, "random"))
        self.assertIn("could not be compared: too slow", note)


class ExplainNoFinalistsTest(absltest.TestCase):
    def outcome(self, *trials) -> Outcome:
        outcome, self.why = explain_no_finalists(trials, 20, 60.0, "allow about 90 s")
        return outcome

    def test_the_budget_was_too_small_if_no_placement_was_tried(self):
        self.assertEqual(self.outcome(trial(0, None)), Outcome.NO_TIME)
        self.assertEqual(
            self.why,
            "only the original was measured within 20 trials and 60 s: allow about 90 s",
        )
        _, why = explain_no_finalists([trial(0, None)], 1, 60.0)
        self.assertEqual(
            why, "only the original was measured within 1 trial and 60 s: allow more trials"
        )

    def test_reports_that_the_original_was_not_measured(self):
        self.assertEqual(self.outcome(), Outcome.NO_TIME)
        self.assertIn("not even the original was measured within", self.why)

    def test_a_failure_of_the_original_alone_is_lack_of_time(self):
        for kind in (_OOM, _TIMEOUT):
            self.assertEqual(self.outcome(make_failed_trial(0, None, kind)), Outcome.NO_TIME)
            self.assertIn(f"does not run ({kind.value}: failure 0), and nothing else was", self.why)
            self.assertEqual("(tf_placer.offload)" in self.why, kind is _OOM)

    def test_advises_more_time_after_time_outs_alone(self):
        trials = [make_failed_trial(k, [k], _TIMEOUT) for k in (1, 2)]
        for original in (trial(0, None), make_failed_trial(0, None, _OOM)):
            self.assertEqual(self.outcome(original, *trials), Outcome.NO_TIME)
            self.assertRegex(self.why, "^2 were tried, and each was given up .*the last: failure 2")
            self.assertIn("allow more time, in another directory", self.why)

    def test_any_other_failure_means_that_no_placement_ran(self):
        trials = [
            make_failed_trial(1, [0], _OOM),
            make_failed_trial(2, [1], _TIMEOUT),
            make_failed_trial(3, [2], _OOM),
            make_failed_trial(4, [0], _OOM, repeats=1),
        ]
        self.assertEqual(self.outcome(trial(0, None), *trials), Outcome.NOTHING_RUNS)
        self.assertEqual(self.why, "3 were tried (2 out_of_memory, 1 timeout); the last: failure 3")
        self.assertEqual(self.outcome(trial(0, None), trials[0]), Outcome.NOTHING_RUNS)
        self.assertEqual(self.why, "1 placement was tried (1 out_of_memory); the last: failure 1")


if __name__ == "__main__":
    absltest.main()
