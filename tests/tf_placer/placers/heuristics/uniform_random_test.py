import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs, placer_conformance
from tf_placer.placers.heuristics.uniform_random import UniformRandom


class UniformRandomTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        return UniformRandom(groups, legal, seed=seed)

    def test_every_legal_device_is_equally_likely(self):
        legal = np.array([[True, True, True], [True, False, True], [False, True, False]])
        placements = UniformRandom(graphs.chain(3), legal, seed=1).propose(3000)
        for group, allowed in enumerate(legal):
            counts = np.bincount(placements[:, group], minlength=3)
            expected = 3000 * allowed / allowed.sum()
            # Five standard deviations of a binomial count with 3000 draws are below 140.
            np.testing.assert_allclose(counts, expected, atol=140)
            np.testing.assert_array_equal(counts[~allowed], 0)

    def test_groups_are_independent(self):
        placements = UniformRandom(graphs.chain(2), np.ones([2, 2], np.bool_)).propose(3000)
        counts = np.bincount(2 * placements[:, 0] + placements[:, 1])
        np.testing.assert_allclose(counts, 750, atol=120)

    def test_seeds_differ(self):
        legal = np.ones([40, 2], np.bool_)
        first = UniformRandom(graphs.chain(40), legal, seed=0).propose(1)
        second = UniformRandom(graphs.chain(40), legal, seed=1).propose(1)
        self.assertTrue((first != second).any())

    def test_continues_the_same_sequence_in_any_batches(self):
        legal = np.ones([10, 2], np.bool_)
        placer = UniformRandom(graphs.chain(10), legal)
        all_at_once = placer.propose(5)
        placer.observe(all_at_once[:2], placer_conformance.measure(all_at_once[:2]))
        np.testing.assert_array_equal(placer.propose(3), all_at_once[2:])


if __name__ == "__main__":
    absltest.main()
