from absl.testing import absltest, parameterized

from tf_placer.placers import AUTO, check_options, describe_placer
from tf_placer.placers.auto.auto_config import AutoConfig


class AutoConfigTest(parameterized.TestCase):
    @parameterized.parameters(
        {"first_share": 1.1},
        {"starts_share": -0.1},
        {"perturbation_share": float("nan")},
        {"rounds": 0},
        {"search_secs": 0.0},
        {"first_temperature": 0.0},
        {"reheating_temperatures": ()},
        {"reheating_temperatures": (0.1, 0.0)},
        {"synchronization_points": ()},
        {"synchronization_points": (0.5, 0.4)},
        {"synchronization_points": (0.5, 1.0)},
        {"clusters": (32, 1)},
        {"deviations": -1.0},
        {"halving_starts": 0},
        {"halving_share": 1.5},
    )
    def test_values_out_of_range_are_refused_by_name(self, **wrong):
        with self.assertRaisesRegex(ValueError, next(iter(wrong))):
            AutoConfig(**wrong)

    def test_options_from_a_command_line_set_it(self):
        options = {"clusters": "8,16", "climbing": "none", "critical_path": "no", "rounds": "2"}
        self.assertEqual(
            check_options(AUTO, options),
            {"clusters": (8, 16), "climbing": "none", "critical_path": False, "rounds": 2},
        )

    @parameterized.parameters(
        ({"clusters": "8,many"}, "'clusters' of placer 'auto' must be a whole number, not 'many'"),
        ({"cluster": "8"}, "did you mean 'clusters'"),
        ({"climbing": "some"}, "every_other, none, all"),
    )
    def test_wrong_options_are_refused(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            check_options(AUTO, options)

    def test_every_setting_has_a_line_of_help(self):
        settings = describe_placer(AUTO).settings
        self.assertGreater(len(settings), 20)
        for setting in settings:
            self.assertNotEmpty(setting.help, setting.name)


if __name__ == "__main__":
    absltest.main()
