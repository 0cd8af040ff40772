import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.placers.learned.groupers.fluid import FluidConfig, group_by_communities


class FluidTest(absltest.TestCase):
    def test_finds_what_has_nothing_to_do_with_each_other(self):
        for config in (FluidConfig(2), FluidConfig(2, weighted=False)):
            groups = group_by_communities(config, graphs.two_chains(5), 0)
            np.testing.assert_array_equal(groups, [0] * 5 + [1] * 5)

    def test_refuses_no_groups(self):
        with self.assertRaisesRegex(ValueError, "num_groups must be positive, not 0"):
            FluidConfig(num_groups=0)


if __name__ == "__main__":
    absltest.main()
