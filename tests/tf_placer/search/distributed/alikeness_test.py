"""When a worker is slower than others for no reason."""

from __future__ import annotations

from absl.testing import absltest

from tf_placer.search.distributed.alikeness import Slowness, odd_one


def slowness(*ratios: float) -> Slowness:
    each = Slowness()
    for ratio in ratios:
        each.add(ratio)
    return each


class OddOneTest(absltest.TestCase):
    def test_the_slowest_is_found(self):
        workers = {"a": slowness(1, 1, 1), "b": slowness(3, 3, 3), "c": slowness(2, 2, 2)}
        self.assertEqual(odd_one(workers)[0], "b")

    def test_alike_machines_stay(self):
        self.assertIsNone(odd_one({"a": slowness(1, 1.2, 1), "b": slowness(1.4, 1.1, 1.4)}))
        self.assertIsNone(odd_one({}))

    def test_one_alone_has_nobody_to_be_compared_with(self):
        self.assertIsNone(odd_one({"a": slowness(1, 9, 9, 9, 9, 9)}))

    def test_a_few_slow_measurements_do_not_count(self):
        self.assertIsNone(odd_one({"a": slowness(1, 1, 1, 1), "b": slowness(5, 5, 1, 5)}))
        self.assertIsNone(odd_one({"a": slowness(1, 1, 1, 1), "b": slowness(5, 5)}))

    def test_a_slow_phase_of_all_does_not_count_whoever_sees_it_first(self):
        self.assertIsNone(odd_one({"a": slowness(1, 1, 1, 1, 3), "b": slowness(3, 3, 3, 3, 3)}))

    def test_the_reason_says_since_when(self):
        workers = {"a": slowness(1, 1, 1), "b": slowness(1, 2, 2, 2, 2, 2)}
        self.assertIn("has become 2.0x as slow as it was", odd_one(workers)[1])
        workers = {"a": slowness(1, 1, 1), "b": slowness(2, 2, 2)}
        self.assertIn("from the start", odd_one(workers)[1])


if __name__ == "__main__":
    absltest.main()
