import numpy as np
from absl.testing import absltest

from tf_placer.placers.learned.legality import check_legal, find_legal_devices, legalize_placements


def _random_legal(rng, num_units, num_devices):
    legal = rng.random([num_units, num_devices]) < 0.5
    legal[np.arange(num_units), rng.integers(num_devices, size=num_units)] = True
    return legal


class CheckLegalTest(absltest.TestCase):
    def test_accepts_units_that_may_go_somewhere(self):
        check_legal(np.eye(3, dtype=np.bool_), 3)

    def test_refuses_other_kinds_and_shapes(self):
        with self.assertRaisesRegex(ValueError, r"bool \[2, devices\], not int64 \[2, 3\]"):
            check_legal(np.ones([2, 3], np.int64), 2)
        with self.assertRaisesRegex(ValueError, r"bool \[4, devices\], not bool \[2, 3\]"):
            check_legal(np.ones([2, 3], np.bool_), 4)

    def test_refuses_a_unit_without_a_device(self):
        with self.assertRaisesRegex(ValueError, "unit 1 has no legal device"):
            check_legal(np.array([[True, True], [False, False]]), 2)


class GroupLegalTest(absltest.TestCase):
    def test_is_where_all_units_may_go_or_else_where_one_may(self):
        legal = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1]], np.bool_)
        result = find_legal_devices(legal, np.array([0, 0, 2, 2], np.int32), 3)
        self.assertEqual(result.tolist(), [[0, 1, 0], [1, 1, 1], [1, 0, 1]])

    def test_equals_brute_force(self):
        rng = np.random.default_rng(0)
        for _ in range(50):
            legal = _random_legal(rng, 8, 3)
            membership = rng.integers(4, size=8).astype(np.int32)
            result = find_legal_devices(legal, membership, 4)
            for group in range(4):
                rows = [set(np.flatnonzero(row)) for row in legal[membership == group]]
                expected = set.intersection({0, 1, 2}, *rows) or set().union(*rows)
                self.assertEqual(set(np.flatnonzero(result[group])), expected)


class LegalPlacementsTest(absltest.TestCase):
    def test_moves_only_what_may_not_stay_to_its_first_device(self):
        rng = np.random.default_rng(1)
        legal = _random_legal(rng, 6, 3)
        devices = rng.integers(3, size=(40, 6)).astype(np.int32)
        result = legalize_placements(devices, legal)
        self.assertEqual(result.dtype, np.int32)
        for before, after in zip(devices, result, strict=True):
            for unit in range(6):
                first = min(np.flatnonzero(legal[unit]))
                self.assertEqual(after[unit], before[unit] if legal[unit, before[unit]] else first)


if __name__ == "__main__":
    absltest.main()
