import dataclasses
from typing import Annotated, Literal

from absl.testing import absltest

from tf_placer.placers.options import config_from_options


@dataclasses.dataclass(frozen=True)
class _Config:
    size: int = 4
    rate: Annotated[float, "a line of help"] = 0.5
    deep: bool = False
    label: str = "none"
    layout: Literal["slots", "terminated"] = "slots"
    limit: float | None = None


class ConfigFromOptionsTest(absltest.TestCase):
    def test_no_options_give_the_defaults(self):
        self.assertEqual(config_from_options(_Config, None, owner="x"), _Config())
        self.assertEqual(config_from_options(_Config, {}, owner="x"), _Config())

    def test_keeps_values_of_the_right_type(self):
        options = {"size": 8, "rate": 0.1, "deep": True, "label": "a", "layout": "terminated"}
        config = config_from_options(_Config, options, owner="x")
        self.assertEqual(config, _Config(8, 0.1, True, "a", "terminated"))

    def test_converts_strings_to_the_type_of_the_field(self):
        options = {"size": "8", "rate": "1e-4", "deep": "True", "label": "7"}
        config = config_from_options(_Config, options, owner="x")
        self.assertEqual(config, _Config(8, 1e-4, True, "7"))
        self.assertIs(config_from_options(_Config, {"deep": "0"}, owner="x").deep, False)

    def test_a_whole_number_is_a_float_too(self):
        rate = config_from_options(_Config, {"rate": 1}, owner="x").rate
        self.assertIsInstance(rate, float)

    def test_an_optional_number_may_be_none(self):
        for value, expected in (("none", None), (None, None), ("2.5", 2.5), (3, 3.0)):
            config = config_from_options(_Config, {"limit": value}, owner="x")
            self.assertEqual(config.limit, expected)
        with self.assertRaisesRegex(ValueError, "'limit' of x must be a number, not 'much'"):
            config_from_options(_Config, {"limit": "much"}, owner="x")

    def test_refuses_unknown_options_and_lists_the_known_ones(self):
        with self.assertRaisesRegex(ValueError, "x has no option 'sise'.*deep, label.*size"):
            config_from_options(_Config, {"sise": 1}, owner="x")
        with self.assertRaisesRegex(ValueError, "x has no option 'size'.*none"):
            config_from_options(None, {"size": 1}, owner="x")

    def test_suggests_the_nearest_option_for_an_unknown_one(self):
        with self.assertRaisesRegex(ValueError, r"no option 'sise' \(did you mean 'size'\?\); its"):
            config_from_options(_Config, {"sise": 1}, owner="x")
        with self.assertRaisesRegex(ValueError, "no option 'zzz'; its"):
            config_from_options(_Config, {"zzz": 1}, owner="x")

    def test_refuses_values_of_other_types(self):
        for name, value in (
            ("size", "four"),
            ("size", 1.5),
            ("size", True),
            ("rate", "fast"),
            ("rate", None),
            ("deep", 1),
            ("deep", "maybe"),
            ("label", 3),
            ("layout", "grid"),
        ):
            with self.assertRaisesRegex(ValueError, f"option {name!r} of x must be .*{value!r}"):
                config_from_options(_Config, {name: value}, owner="x")


if __name__ == "__main__":
    absltest.main()
