import dataclasses

from absl.testing import absltest

from tf_placer.placers.former_names import FORMER_NAMES, rename_former
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


if __name__ == "__main__":
    absltest.main()
