import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs
from tf_placer.placers.learned.groupers.metis import MetisConfig, group_by_metis


class MetisTest(absltest.TestCase):
    def test_finds_what_has_nothing_to_do_with_each_other(self):
        groups = group_by_metis(MetisConfig(2), graphs.two_chains(5), 0)
        np.testing.assert_array_equal(groups, [0] * 5 + [1] * 5)

    def test_refuses_no_groups(self):
        with self.assertRaisesRegex(ValueError, "num_groups must be positive, not 0"):
            MetisConfig(num_groups=0)


if __name__ == "__main__":
    absltest.main()
