"""Tests of the comparison of computed values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from absl.testing import absltest, parameterized

from tf_placer.confirmation.equal_values import describe_difference


class EqualValuesTest(parameterized.TestCase):
    def assert_equal(self, a, b):
        self.assertIsNone(describe_difference({"v": np.asarray(a)}, {"v": np.asarray(b)}))

    def assert_different(self, a, b, regex):
        text = describe_difference({"v": np.asarray(a)}, {"v": np.asarray(b)})
        self.assertRegex(text or "no difference", regex)

    def test_two_empty_results_are_equal(self):
        self.assertIsNone(describe_difference({}, {}))

    def test_a_missing_name_is_a_difference(self):
        one = {"a": np.ones(1)}
        self.assertRegex(describe_difference(one, {}) or "", "only one .* 'a'")
        self.assertRegex(describe_difference({}, one) or "", "only one .* 'a'")

    def test_shape_and_type_count(self):
        self.assert_different(
            np.ones(2), np.ones(3), r"'v' is float64\[3\] instead of float64\[2\]"
        )
        self.assert_different(np.ones(2), np.ones(2, np.float32), "float32")

    @parameterized.parameters(np.float16, np.float32, np.float64, np.complex64, ml_dtypes.bfloat16)
    def test_rounding_is_no_difference(self, dtype):
        eps = float(ml_dtypes.finfo(dtype).eps) if dtype != np.complex64 else 1e-7
        values = np.random.default_rng(0).normal(size=1000)
        self.assert_equal(values.astype(dtype), (values * (1 + 2 * eps)).astype(dtype))

    @parameterized.parameters(np.float16, np.float32, np.float64, np.complex64, ml_dtypes.bfloat16)
    def test_other_numbers_are_a_difference(self, dtype):
        values = np.random.default_rng(0).normal(size=1000)
        other = np.copy(values)
        other[7] += 1
        self.assert_different(values.astype(dtype), other.astype(dtype), "differs by up to 1 ")

    def test_tolerates_cancellation_in_small_numbers_among_large_ones(self):
        self.assert_equal([1000.0, 0.0], [1000.0, 0.3])
        self.assert_different([1.0, 0.0], [1.0, 0.3], "up to 0.3 in values of up to 1")

    def test_non_finite_values_must_be_in_the_same_places(self):
        self.assert_equal([np.nan, np.inf, -np.inf, 1], [np.nan, np.inf, -np.inf, 1])
        self.assert_different([np.nan, 1.0], [1.0, 1.0], "not finite in other places")
        self.assert_different([1.0, 1.0], [np.nan, np.nan], "not finite in other places")
        self.assert_different([np.inf], [-np.inf], "not finite in other places")

    def test_integers_strings_and_booleans_must_be_the_same(self):
        self.assert_equal([1, 2], [1, 2])
        self.assert_different([1, 2], [1, 3], "'v' has other values")
        self.assert_equal(np.array([b"a"], object), np.array([b"a"], object))
        self.assert_different(np.array([b"a"], object), np.array([b"b"], object), "other values")
        self.assert_different([True], [False], "other values")

    def test_quantized_values_must_be_the_same(self):
        dtype = np.dtype([("qint8", np.int8)])
        self.assert_equal(np.zeros(2, dtype), np.zeros(2, dtype))
        self.assert_different(np.zeros(2, dtype), np.ones(2, dtype), "other values")

    def test_empty_arrays_are_equal(self):
        self.assert_equal(np.zeros([0, 3]), np.zeros([0, 3]))

    def test_reports_the_first_difference_by_name(self):
        a = {"x": np.ones(1), "y": np.ones(1)}
        b = {"x": np.zeros(1), "y": np.zeros(1)}
        self.assertRegex(describe_difference(a, b) or "", "^'x'")


if __name__ == "__main__":
    absltest.main()
