"""Tests of `Callbacks`, which passes calls on to several callbacks."""

from __future__ import annotations

from unittest import mock

from absl.testing import absltest

from tests.tf_placer.scripted import trial
from tf_placer.search.budget import Budget, Progress
from tf_placer.search.callbacks import Callback, Callbacks, report_trial


def listener(wants_end: bool | None) -> mock.Mock:
    each = mock.create_autospec(Callback, instance=True)
    each.on_trial.return_value = wants_end
    return each


class CallbacksTest(absltest.TestCase):
    def test_all_callbacks_are_called_even_if_one_requests_the_end(self):
        first, second = listener(True), listener(None)
        both = Callbacks([first, second])
        best, slow = trial(1, [0, 1]), trial(2, [1, 1], 0.5)
        self.assertTrue(report_trial(both, best, Progress(2, Budget(9, 9.0), best, 1.0, 1.0)))
        self.assertTrue(report_trial(both, slow, Progress(3, Budget(9, 9.0), best, 1.0, 1.0)))
        both.on_stage("measuring")
        both.on_note("late")
        for each in (first, second):
            self.assertEqual(each.on_trial.call_count, 2)
            each.on_best.assert_called_once_with(best)
            each.on_stage.assert_called_once_with("measuring")
            each.on_note.assert_called_once_with("late")

    def test_the_search_continues_unless_a_callback_returns_true(self):
        one = trial(1, [0, 1])
        progress = Progress(2, Budget(9, 9.0), None, 1.0, 1.0)
        self.assertFalse(report_trial(Callbacks([]), one, progress))
        self.assertFalse(report_trial(Callbacks([Callback(), listener(None)]), one, progress))


if __name__ == "__main__":
    absltest.main()
