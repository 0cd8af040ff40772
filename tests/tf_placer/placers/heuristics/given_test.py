import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs, placer_conformance
from tf_placer.placers import GIVEN, find_start_source, make_placer
from tf_placer.placers.heuristics.given import Given


class GivenTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        start = np.zeros(groups.num_groups, np.int32)
        return Given(groups, legal, seed=seed, start=start)

    def test_proposes_the_given_placement_once(self):
        legal = np.array([[True, True, True], [False, False, True]])
        start = np.array([1, 2], np.int32)
        options = {"start": "plan.json"}
        self.assertEqual(find_start_source(GIVEN, options), "plan.json")
        placer = make_placer(GIVEN, graphs.chain(2), legal, options=options, start=start)
        self.assertEqual(placer.propose(9).tolist(), [[1, 2]])
        placer.observe(placer.propose(9), [None])
        self.assertEqual(placer.propose(9).tolist(), [])

    def test_needs_a_placement(self):
        with self.assertRaisesRegex(ValueError, "option 'start' is None"):
            make_placer(GIVEN, graphs.chain(2), np.ones([2, 2], np.bool_))


if __name__ == "__main__":
    absltest.main()
