import dataclasses
import math

from absl.testing import absltest

from tf_placer.placers.validators import check_fields


@dataclasses.dataclass(frozen=True)
class _Config:
    width: float | None = 1.0


class CheckFieldsTest(absltest.TestCase):
    def test_names_the_field_its_range_and_the_value(self):
        with self.assertRaisesRegex(ValueError, "^width must be positive, not -2$"):
            check_fields(_Config(-2), ("width",), lambda value: value > 0, "positive")

    def test_refuses_nan(self):
        with self.assertRaisesRegex(ValueError, "not nan"):
            check_fields(_Config(math.nan), ("width",), lambda value: value > 0, "positive")

    def test_none_passes(self):
        check_fields(_Config(None), ("width",), lambda value: value > 0, "positive")


if __name__ == "__main__":
    absltest.main()
