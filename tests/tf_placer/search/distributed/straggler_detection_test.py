"""Tests of the detection of workers that are slower than the others."""

from __future__ import annotations

from absl.testing import absltest

from tf_placer.search.distributed.straggler_detection import RelativeStepTime, find_straggler


def measure(*ratios: float) -> RelativeStepTime:
    each = RelativeStepTime()
    for ratio in ratios:
        each.add(ratio)
    return each


class FindStragglerTest(absltest.TestCase):
    def test_finds_the_slowest_worker(self):
        workers = {"a": measure(1, 1, 1), "b": measure(3, 3, 3), "c": measure(2, 2, 2)}
        self.assertEqual(find_straggler(workers)[0], "b")

    def test_similar_machines_are_no_stragglers(self):
        self.assertIsNone(find_straggler({"a": measure(1, 1.2, 1), "b": measure(1.4, 1.1, 1.4)}))
        self.assertIsNone(find_straggler({}))

    def test_a_single_worker_is_no_straggler(self):
        self.assertIsNone(find_straggler({"a": measure(1, 9, 9, 9, 9, 9)}))

    def test_a_few_slow_measurements_do_not_count(self):
        self.assertIsNone(find_straggler({"a": measure(1, 1, 1, 1), "b": measure(5, 5, 1, 5)}))
        self.assertIsNone(find_straggler({"a": measure(1, 1, 1, 1), "b": measure(5, 5)}))

    def test_a_slow_phase_of_all_machines_does_not_count(self):
        self.assertIsNone(
            find_straggler({"a": measure(1, 1, 1, 1, 3), "b": measure(3, 3, 3, 3, 3)})
        )

    def test_the_reason_says_since_when_the_worker_is_slow(self):
        workers = {"a": measure(1, 1, 1), "b": measure(1, 2, 2, 2, 2, 2)}
        self.assertIn("has become 2.0x as slow as it was", find_straggler(workers)[1])
        workers = {"a": measure(1, 1, 1), "b": measure(2, 2, 2)}
        self.assertIn("from the start", find_straggler(workers)[1])


if __name__ == "__main__":
    absltest.main()
