import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs, placer_conformance
from tf_placer.placers.heuristics.single_device import SingleDevice


class SingleDeviceTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        return SingleDevice(groups, legal, seed=seed)

    def test_proposes_every_device_and_the_cpu_of_the_session_last(self):
        placer = SingleDevice(graphs.chain(2), np.ones([2, 3], np.bool_))
        self.assertEqual(placer.propose(9).tolist(), [[1, 1], [2, 2], [0, 0]])

    def test_replaces_illegal_devices_by_the_first_legal_device(self):
        legal = np.array([[True, True], [True, False], [False, True]])
        placer = SingleDevice(graphs.chain(3), legal)
        self.assertEqual(placer.propose(9).tolist(), [[1, 0, 1], [0, 0, 1]])

    def test_proposes_equal_placements_once(self):
        legal = np.array([[True, False, False], [True, True, False]])
        placer = SingleDevice(graphs.chain(2), legal)
        self.assertEqual(placer.propose(9).tolist(), [[0, 1], [0, 0]])

    def test_ends_when_every_device_was_measured(self):
        placer = SingleDevice(graphs.chain(2), np.ones([2, 3], np.bool_))
        first = placer.propose(2)
        placer.observe(first, placer_conformance.measure(first))
        self.assertEqual(placer.propose(2).tolist(), [[0, 0]])
        placer.observe(placer.propose(2), placer_conformance.measure(placer.propose(2)))
        self.assertEmpty(placer.propose(2))


if __name__ == "__main__":
    absltest.main()
