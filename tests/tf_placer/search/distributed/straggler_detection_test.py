"""When a worker is slower than others for no reason."""

from __future__ import annotations

from absl.testing import absltest

from tf_placer.search.distributed.straggler_detection import RelativeStepTime, find_straggler


def slowness(*ratios: float) -> RelativeStepTime:
    each = RelativeStepTime()
    for ratio in ratios:
        each.add(ratio)
    return each


class FindStragglerTest(absltest.TestCase):
    def test_the_slowest_is_found(self):
        workers = {"a": slowness(1, 1, 1), "b": slowness(3, 3, 3), "c": slowness(2, 2, 2)}
        self.assertEqual(find_straggler(workers)[0], "b")

    def test_alike_machines_stay(self):
        self.assertIsNone(find_straggler({"a": slowness(1, 1.2, 1), "b": slowness(1.4, 1.1, 1.4)}))
        self.assertIsNone(find_straggler({}))

    def test_one_alone_has_nobody_to_be_compared_with(self):
        self.assertIsNone(find_straggler({"a": slowness(1, 9, 9, 9, 9, 9)}))

    def test_a_few_slow_measurements_do_not_count(self):
        self.assertIsNone(find_straggler({"a": slowness(1, 1, 1, 1), "b": slowness(5, 5, 1, 5)}))
        self.assertIsNone(find_straggler({"a": slowness(1, 1, 1, 1), "b": slowness(5, 5)}))

    def test_a_slow_phase_of_all_does_not_count_whoever_sees_it_first(self):
        self.assertIsNone(
            find_straggler({"a": slowness(1, 1, 1, 1, 3), "b": slowness(3, 3, 3, 3, 3)})
        )

    def test_the_reason_says_since_when(self):
        workers = {"a": slowness(1, 1, 1), "b": slowness(1, 2, 2, 2, 2, 2)}
        self.assertIn("has become 2.0x as slow as it was", find_straggler(workers)[1])
        workers = {"a": slowness(1, 1, 1), "b": slowness(2, 2, 2)}
        self.assertIn("from the start", find_straggler(workers)[1])


if __name__ == "__main__":
    absltest.main()
