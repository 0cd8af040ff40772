from __future__ import annotations

import ast
import importlib.util
import math
import pathlib
import subprocess
import sys
import unittest

from absl.testing import absltest

from benchmarks.gpu_model.cases import Case, Cases, Tensor, read_cases
from benchmarks.gpu_model.measurement import read_measurement

HAS_TORCH = importlib.util.find_spec("torch") is not None
ROOT = pathlib.Path(__file__).resolve().parents[3]


def case(op_type: str, inputs, outputs, **attributes) -> Case:
    given = tuple(Tensor("float32", shape) for shape in inputs)
    made = tuple(Tensor("float32", shape) for shape in outputs)
    return Case(op_type, given, made, attributes, 0.0, 8.0, {"a": 1.0})


MATMUL = case("MatMul", [(6, 4), (5, 6)], [(4, 5)], transpose_a=True, transpose_b=True)
IMAGES = {"strides": [1, 2, 2, 1], "padding": "SAME", "data_format": "NHWC"}
CONVOLUTION = case("Conv2D", [(2, 9, 9, 3), (3, 3, 3, 4)], [(2, 5, 5, 4)], **IMAGES)
DEPTHWISE = case("DepthwiseConv2dNative", [(2, 9, 9, 3), (3, 3, 3, 2)], [(2, 5, 5, 6)], **IMAGES)
INPUT_GRADIENT = case(
    "Conv2DBackpropInput", [(4,), (3, 3, 3, 4), (2, 5, 5, 4)], [(2, 9, 9, 3)], **IMAGES
)
UNKNOWN = case("NoSuchOperation", [(1,)], [(1,)])
HUGE = case("Neg", [(10**7, 10**7)], [(10**7, 10**7)])


class MeasureTest(absltest.TestCase):
    def test_measuring_needs_nothing_but_pytorch(self):
        wanted, seen, needed = ["measure"], set(), set()
        while wanted:
            name = wanted.pop()
            seen.add(name)
            for node in ast.walk(ast.parse((ROOT / f"benchmarks/gpu_model/{name}.py").read_text())):
                names = [node.module] if isinstance(node, ast.ImportFrom) else []
                names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
                for module in names:
                    package, _, own = module.partition("benchmarks.gpu_model.")
                    if own and own not in seen:
                        wanted.append(own)
                    elif not own:
                        needed.add(package.partition(".")[0])
        self.assertIn("kernels", seen)
        self.assertEqual(needed - sys.stdlib_module_names, {"torch"})


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed: measuring is tried where it is")
class MeasureWithTorchTest(absltest.TestCase):
    def test_calls_make_what_operations_make(self):
        import torch

        from benchmarks.gpu_model.kernels import MAKERS

        for each in (MATMUL, CONVOLUTION, DEPTHWISE, INPUT_GRADIENT):
            made = MAKERS[each.op_type](each, torch.device("cpu"))[1]()
            made = made[0] if isinstance(made, tuple) else made
            self.assertEqual(math.prod(made.shape), math.prod(each.outputs[0].shape), each.key)

    def test_each_type_of_the_kept_cases_has_a_call(self):
        from benchmarks.gpu_model.kernels import MAKERS

        self.assertContainsSubset({case.op_type for case in read_cases().cases}, MAKERS)

    def test_failures_are_rows_and_a_limit_of_time_ends_it(self):
        import torch

        from benchmarks.gpu_model.measure import measure_case

        cpu = torch.device("cpu")
        self.assertIn("no call of PyTorch", measure_case(UNKNOWN, cpu)["error"])
        self.assertIn("of memory", measure_case(HUGE, cpu)["error"])
        self.assertGreater(measure_case(MATMUL, cpu)["secs"]["float32"], 0)

    def test_the_file_can_be_compared(self):
        directory = pathlib.Path(self.create_tempdir())
        cases = Cases("CPU", {"a": 1.0}, {"a": 1.0}, (MATMUL, UNKNOWN, CONVOLUTION), {})
        cases.write(directory / "cases.json.gz")
        command = [sys.executable, "-m", "benchmarks.gpu_model.measure", "--device", "cpu"]
        command += ["--cases", directory / "cases.json.gz", "--out", directory / "out.jsonl"]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        found = read_measurement(directory / "out.jsonl", cases.cases)
        self.assertLen(found.cases, 2)
        self.assertEqual(list(found.failures), [UNKNOWN.key])
        self.assertIn("launch", found.limits)


if __name__ == "__main__":
    absltest.main()
