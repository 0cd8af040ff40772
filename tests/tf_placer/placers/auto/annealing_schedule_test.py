from absl.testing import absltest

from tf_placer.placers.auto.annealing_schedule import AnnealingSchedule
from tf_placer.placers.auto.auto_config import AutoConfig

# Chains cool from 1e-2 to 1e-4, are reheated to 1e-3, and then to 1e-2. Cooling is geometric.
_CONFIG = AutoConfig(
    first_temperature=1e-2,
    last_temperature=1e-4,
    reheating_temperatures=(1e-2, 1e-3),
    synchronization_points=(0.4, 0.6, 0.8),
    halving_share=0.1,
    coarse_moves=0.8,
    climbing_coarse_moves=0.2,
    perturbation_share=0.05,
)


def make_schedule(config: AutoConfig = _CONFIG, **changes) -> AnnealingSchedule:
    """Makes the schedule of a search with time to move each of 100 groups often."""
    values = {
        "begin": 0.0,
        "is_halving": False,
        "is_refinement": False,
        "num_expected": 1e6,
        "num_movable": 100,
        "num_single_moves": 300,
    }
    return AnnealingSchedule(config, **{**values, **changes})


class AnnealingScheduleTest(absltest.TestCase):
    def test_a_chain_cools_until_each_synchronization_point(self):
        schedule = make_schedule()
        shares = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)
        expected = (1e-2, 1e-3, 1e-3, 10**-3.5, 1e-2, 1e-3, 1e-3, 1e-4)
        for share, temperature in zip(shares, expected, strict=True):
            self.assertAlmostEqual(schedule.find_parameters(share, 0).temperature, temperature)
            self.assertEqual(schedule.find_parameters(share, 0).patience, 0)

    def test_every_other_chain_climbs_after_the_first_synchronization_point(self):
        schedule = make_schedule()
        self.assertEqual(schedule.find_parameters(0.3, 1), schedule.find_parameters(0.3, 0))
        climbing = schedule.find_parameters(0.5, 1)
        self.assertEqual(climbing.temperature, 1e-4)
        self.assertEqual((climbing.patience, climbing.perturbation_moves), (300, 5))
        self.assertEqual(climbing.coarse_share, 0.2)

    def test_a_perturbation_has_at_least_two_moves(self):
        parameters = make_schedule(num_movable=3).find_parameters(0.5, 1)
        self.assertEqual(parameters.perturbation_moves, 2)

    def test_the_share_of_cluster_moves_falls_in_the_second_half(self):
        schedule = make_schedule()
        self.assertEqual(
            [schedule.find_parameters(s, 0).coarse_share for s in (0.1, 0.5)], [0.8, 0.8]
        )
        self.assertAlmostEqual(schedule.find_parameters(0.75, 0).coarse_share, 0.4)
        self.assertAlmostEqual(schedule.find_parameters(1.0, 0).coarse_share, 0.0)

    def test_successive_halving_is_cold_and_delays_the_cooling(self):
        schedule = make_schedule(is_halving=True, begin=0.2)
        self.assertAlmostEqual(schedule.halving_end, 0.28)
        self.assertEqual(schedule.find_parameters(0.27, 0).temperature, 1e-4)
        self.assertAlmostEqual(schedule.find_parameters(schedule.halving_end, 0).temperature, 1e-2)
        self.assertAlmostEqual(schedule.find_parameters(0.34, 0).temperature, 1e-3)

    def test_successive_halving_ends_at_the_first_synchronization_point(self):
        self.assertAlmostEqual(make_schedule(is_halving=True, begin=0.39).halving_end, 0.4)
        self.assertAlmostEqual(make_schedule(is_halving=True, begin=0.5).halving_end, 0.5)

    def test_with_few_moves_left_it_begins_cooler(self):
        self.assertAlmostEqual(
            make_schedule(num_expected=50).find_parameters(0.0, 0).temperature, 5e-3
        )
        self.assertAlmostEqual(
            make_schedule(num_expected=0).find_parameters(0.0, 0).temperature, 1e-4
        )

    def test_a_refinement_has_no_first_cooling(self):
        schedule = make_schedule(is_refinement=True)
        self.assertAlmostEqual(schedule.find_parameters(0.0, 0).temperature, 1e-3)
        # The second synchronization point is a third of the way from the first to the end.
        self.assertAlmostEqual(schedule.find_parameters(1 / 6, 0).temperature, 10**-3.5)
        self.assertGreater(schedule.find_parameters(0.0, 1).patience, 0)


if __name__ == "__main__":
    absltest.main()
