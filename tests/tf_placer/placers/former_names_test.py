import dataclasses

from absl.testing import absltest

from tf_placer.placers import AUTO, check_options, describe_placer
from tf_placer.placers.former_names import FORMER_NAMES, rename_former, restore_former
from tf_placer.placers.options import config_from_options


@dataclasses.dataclass(frozen=True)
class _Config:
    normalize: bool = True


class RenameFormerTest(absltest.TestCase):
    def test_renames_former_names_only(self):
        for former, name in FORMER_NAMES.items():
            renamed = rename_former({former: 1, "size": 2}, owner="x")
            self.assertEqual(renamed, {name: 1, "size": 2})

    def test_rejects_a_former_name_beside_todays(self):
        for former, name in FORMER_NAMES.items():
            with self.assertRaisesRegex(ValueError, f"x has options '{former}' and '{name}'"):
                rename_former({former: 1, name: 1}, owner="x")

    def test_configurations_accept_former_names(self):
        former = next(former for former, name in FORMER_NAMES.items() if name == "normalize")
        config = config_from_options(_Config, {former: "false"}, owner="x")
        self.assertEqual(config, _Config(normalize=False))

    def test_placers_accept_former_names(self):
        for placer, options, expected in (
            (AUTO, {"kick_share": "0.05"}, {"perturbation_share": 0.05}),
            (AUTO, {"meetings": "0.2,0.4"}, {"synchronization_points": (0.2, 0.4)}),
            ("post", {"signal": "sqrt"}, {"reward": "sqrt"}),
            ("post", {"penalty_secs": "7"}, {"failure_secs": 7.0}),
        ):
            self.assertEqual(check_options(placer, options), expected)
            with self.assertRaisesRegex(ValueError, "which are the same option"):
                check_options(placer, options | expected)

    def test_every_todays_name_is_a_setting(self):
        placers = (AUTO, "eagle")
        settings = {each.name for placer in placers for each in describe_placer(placer).settings}
        self.assertContainsSubset(FORMER_NAMES.values(), settings)
        self.assertNoCommonElements(FORMER_NAMES, settings)


class RestoreFormerTest(absltest.TestCase):
    def test_reverses_the_renaming(self):
        former = {name: number for number, name in enumerate(FORMER_NAMES)} | {"size": 2}
        self.assertEqual(restore_former(rename_former(former, owner="x")), former)


if __name__ == "__main__":
    absltest.main()
