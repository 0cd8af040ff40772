import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs, placer_conformance
from tf_placer.placers.heuristics.single_cpu import SingleCpu


class SingleCpuTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        return SingleCpu(groups, legal, seed=seed)

    def test_proposes_device_0_wherever_it_is_legal(self):
        legal = np.array([[True, True, True], [False, False, True]])
        placer = SingleCpu(graphs.chain(2), legal)
        self.assertEqual(placer.propose(9).tolist(), [[0, 2]])


if __name__ == "__main__":
    absltest.main()
