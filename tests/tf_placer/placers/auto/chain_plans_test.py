from absl.testing import absltest

from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.chain_plans import ChainPlans

# It cools from 1e-2 to 1e-4, from 1e-3 and from 1e-2 again: half way is in the geometric middle.
_CONFIG = AutoConfig(
    first_temperature=1e-2,
    last_temperature=1e-4,
    again_temperatures=(1e-2, 1e-3),
    meetings=(0.4, 0.6, 0.8),
    race_share=0.1,
    coarse_moves=0.8,
    climbing_coarse_moves=0.2,
    kick_share=0.05,
)


def plans(config: AutoConfig = _CONFIG, **changes) -> ChainPlans:
    """Plans of a search that begins at once, with time to move each of 100 groups often."""
    values = {
        "begin": 0.0,
        "is_race": False,
        "is_refinement": False,
        "num_expected": 1e6,
        "num_movable": 100,
        "num_single_moves": 300,
    }
    return ChainPlans(config, **{**values, **changes})


class ChainPlansTest(absltest.TestCase):
    def test_a_chain_cools_until_the_first_meeting_and_from_each_meeting_to_the_next(self):
        planned = plans()
        shares = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)
        expected = (1e-2, 1e-3, 1e-3, 10**-3.5, 1e-2, 1e-3, 1e-3, 1e-4)
        for share, temperature in zip(shares, expected, strict=True):
            self.assertAlmostEqual(planned.plan(share, 0).temperature, temperature)
            self.assertEqual(planned.plan(share, 0).patience, 0)

    def test_every_other_chain_climbs_after_the_first_meeting(self):
        planned = plans()
        self.assertEqual(planned.plan(0.3, 1), planned.plan(0.3, 0))
        climbing = planned.plan(0.5, 1)
        self.assertEqual(climbing.temperature, 1e-4)
        self.assertEqual((climbing.patience, climbing.kick), (300, 5))
        self.assertEqual(climbing.coarse_share, 0.2)

    def test_of_few_groups_two_move_at_once_where_climbing_is_stuck(self):
        self.assertEqual(plans(num_movable=3).plan(0.5, 1).kick, 2)

    def test_whole_clusters_move_less_and_less_in_the_second_half(self):
        planned = plans()
        self.assertEqual([planned.plan(s, 0).coarse_share for s in (0.1, 0.5)], [0.8, 0.8])
        self.assertAlmostEqual(planned.plan(0.75, 0).coarse_share, 0.4)
        self.assertAlmostEqual(planned.plan(1.0, 0).coarse_share, 0.0)

    def test_a_race_is_cold_takes_its_share_and_delays_the_cooling(self):
        planned = plans(is_race=True, begin=0.2)
        self.assertAlmostEqual(planned.race_end, 0.28)
        self.assertEqual(planned.plan(0.27, 0).temperature, 1e-4)
        self.assertAlmostEqual(planned.plan(planned.race_end, 0).temperature, 1e-2)
        self.assertAlmostEqual(planned.plan(0.34, 0).temperature, 1e-3)

    def test_a_race_ends_at_the_first_meeting(self):
        self.assertAlmostEqual(plans(is_race=True, begin=0.39).race_end, 0.4)
        self.assertAlmostEqual(plans(is_race=True, begin=0.5).race_end, 0.5)

    def test_with_few_moves_left_it_begins_cooler(self):
        self.assertAlmostEqual(plans(num_expected=50).plan(0.0, 0).temperature, 5e-3)
        self.assertAlmostEqual(plans(num_expected=0).plan(0.0, 0).temperature, 1e-4)

    def test_a_refinement_has_no_first_cooling(self):
        planned = plans(is_refinement=True)
        self.assertAlmostEqual(planned.plan(0.0, 0).temperature, 1e-3)
        # A third of the rest of a search, after the first meeting, ends at the second.
        self.assertAlmostEqual(planned.plan(1 / 6, 0).temperature, 10**-3.5)
        self.assertGreater(planned.plan(0.0, 1).patience, 0)


if __name__ == "__main__":
    absltest.main()
