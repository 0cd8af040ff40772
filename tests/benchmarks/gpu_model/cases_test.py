from __future__ import annotations

import pathlib

from absl.testing import absltest

from benchmarks.gpu_model.cases import Case, Cases, Tensor, order_by_value, read_cases


def case(op_type: str, size: int) -> Case:
    given, made = Tensor("float32", (size, 2)), Tensor("float32", (size,))
    axes = Tensor("int32", (1,), [1])
    return Case(op_type, (given, axes), (made,), {"keep_dims": True}, 0.0, 12.0 * size, {"a": 3.0})


class CasesTest(absltest.TestCase):
    def test_a_file_gives_back_what_was_written(self):
        cases = Cases("H100", {"a": 0.5}, {"a": 0.9}, (case("Sum", 4), case("Max", 8)), {"x": "y"})
        path = pathlib.Path(self.create_tempdir(), "cases.json.gz")
        cases.write(path)
        self.assertEqual(read_cases(path), cases)

    def test_the_kept_file_has_all_kinds(self):
        cases = read_cases()
        self.assertGreaterEqual(min(cases.covered.values()), 0.95)
        self.assertLen({each.key for each in cases.cases}, len(cases.cases))
        kinds = {each.kind for each in cases.cases}
        for kind in ("matrix product", "convolution", "optimizer", "element-wise", "pooling"):
            self.assertIn(kind, kinds)

    def test_one_case_of_each_type_comes_before_the_second_of_any(self):
        cases = [case("Sum", 4), case("Sum", 8), case("Sum", 16), case("Max", 4), case("Max", 8)]
        values = dict(zip((each.key for each in cases), (5.0, 9.0, 7.0, 1.0, 2.0), strict=True))
        ordered = [(each.op_type, values[each.key]) for each in order_by_value(cases, values)]
        expected = [("Sum", 9.0), ("Max", 2.0), ("Sum", 7.0), ("Max", 1.0), ("Sum", 5.0)]
        self.assertEqual(ordered, expected)


if __name__ == "__main__":
    absltest.main()
