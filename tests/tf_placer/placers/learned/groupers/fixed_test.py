import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.placers.learned.groupers.fixed import FluidConfig, MetisConfig, fixed_groups


class FixedGroupsTest(absltest.TestCase):
    def test_finds_what_has_nothing_to_do_with_each_other(self):
        for config in (MetisConfig(2), FluidConfig(2), FluidConfig(2, weighted=False)):
            groups = fixed_groups(config, graphs.two_chains(5), seed=0)
            np.testing.assert_array_equal(groups, [0] * 5 + [1] * 5)

    def test_without_a_grouper_every_unit_is_a_group(self):
        np.testing.assert_array_equal(fixed_groups(None, graphs.chain(4), seed=0), range(4))

    def test_refuses_no_groups(self):
        for config in (MetisConfig, FluidConfig):
            with self.assertRaisesRegex(ValueError, "num_groups must be positive, not 0"):
                config(num_groups=0)


if __name__ == "__main__":
    absltest.main()
