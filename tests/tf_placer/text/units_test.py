import doctest

from absl.testing import absltest, parameterized

from tf_placer.text import table, units
from tf_placer.text.units import format_bytes, format_duration, format_step


class UnitsTest(parameterized.TestCase):
    @parameterized.parameters(
        (0.0, "0.0 s"),
        (4.24, "4.2 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185.0, "3 min 05 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (7380.0, "2 h 03 min"),
        (360000.0, "100 h 00 min"),
    )
    def test_durations(self, secs, expected):
        self.assertEqual(format_duration(secs), expected)

    @parameterized.parameters(
        (0.00085, "850.0 µs"),
        (0.0000012, "1.200 µs"),
        (0.01234, "12.34 ms"),
        (0.99994, "999.9 ms"),
        (0.99996, "1.000 s"),
        (0.00099996, "1.000 ms"),
        (0.0, "0 s"),
        (12.0, "12.00 s"),
        (1234.5, "1234 s"),
    )
    def test_step_times_have_four_digits(self, secs, expected):
        self.assertEqual(format_step(secs), expected)

    @parameterized.parameters(
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.000 KiB"),
        (12_636, "12.34 KiB"),
        (1_030_000, "1006 KiB"),
        (2**20 - 1, "1.000 MiB"),
        (3 * 2**29, "1.500 GiB"),
        (2**40, "1.000 TiB"),
        (2**51, "2048 TiB"),
    )
    def test_sizes_have_four_digits(self, size, expected):
        self.assertEqual(format_bytes(size), expected)

    def test_the_examples_in_the_docstrings_hold(self):
        for module in (units, table):
            result = doctest.testmod(module)
            self.assertEqual(result.failed, 0)
            self.assertGreater(result.attempted, 0)


if __name__ == "__main__":
    absltest.main()
