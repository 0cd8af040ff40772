from __future__ import annotations

from absl.testing import absltest

from graph_passes.nested_runs import Nested, run_nested


def total(numbers: list) -> Nested[int]:
    """Adds up the numbers in lists of lists; "" is an error, and a set is an error that is met."""
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
    def test_results_are_those_of_recursion(self):
        self.assertEqual(run_nested(total([1, [2, [3], []], [4, 5]])), 15)
        self.assertEqual(run_nested(total([])), 0)

    def test_depth_has_no_limit(self):
        numbers: list = []
        for _ in range(50_000):
            numbers = [1, numbers]
        try:
            self.assertEqual(run_nested(total(numbers)), 50_000)
        finally:
            while numbers:  # Python's own end of so deep a list is recursive.
                numbers = numbers.pop()

    def test_errors_go_through_the_callers(self):
        self.assertEqual(run_nested(total([[set()], 1])), 101)
        with self.assertRaises(TypeError):
            run_nested(total([1, [2, [""]]]))


if __name__ == "__main__":
    absltest.main()
