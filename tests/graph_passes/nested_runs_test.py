from __future__ import annotations

from absl.testing import absltest

from graph_passes.nested_runs import Nested, run_nested


def total(numbers: list) -> Nested[int]:
    """Adds up numbers in nested lists; "" raises an error, and a set raises and catches one."""
    result = 0
    for item in numbers:
        if isinstance(item, list):
            result += yield total(item)
        elif isinstance(item, set):
            try:
                yield total([""])
            except TypeError:
                result += 100
        else:
            result += item
    return result


class NestedRunsTest(absltest.TestCase):
    def test_results_equal_recursion(self):
        self.assertEqual(run_nested(total([1, [2, [3], []], [4, 5]])), 15)
        self.assertEqual(run_nested(total([])), 0)

    def test_depth_has_no_limit(self):
        numbers: list = []
        for _ in range(50_000):
            numbers = [1, numbers]
        try:
            self.assertEqual(run_nested(total(numbers)), 50_000)
        finally:
            while numbers:  # Python destroys nested lists recursively.
                numbers = numbers.pop()

    def test_errors_propagate_through_callers(self):
        self.assertEqual(run_nested(total([[set()], 1])), 101)
        with self.assertRaises(TypeError):
            run_nested(total([1, [2, [""]]]))


if __name__ == "__main__":
    absltest.main()
