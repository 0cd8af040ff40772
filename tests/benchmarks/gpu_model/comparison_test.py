from __future__ import annotations

import json
import pathlib

from absl.testing import absltest

from benchmarks.gpu_model.cases import Case, Cases, Tensor
from benchmarks.gpu_model.compare import class_of_device, comparison_page
from benchmarks.gpu_model.comparison import Comparison, modeled_secs
from benchmarks.gpu_model.measurement import read_measurement
from tf_placer.machines.machine import DeviceClass

# Operations take 10 us and 1 us for each 1e6 flops or 1e5 bytes.
CLASS = DeviceClass("toy", "GPU", 2**30, 2e12, 2e11, 1e-5, 0.5, 0.5, 1, "")
PRODUCT = Case(
    *("MatMul", (Tensor("float32", (1000, 1000)),), (), {}, 1e9, 1e6, {"one": 2.0, "other": 1.0})
)
SUM = Case("AddV2", (Tensor("float32", (9, 9)),), (), {}, 0.0, 1e7, {"one": 1.0})
TINY = Case("Neg", (Tensor("float32", (1,)),), (), {}, 0.0, 8.0, {"other": 4.0})
CASES = Cases(
    *("toy", {"one": 2.1e-3, "other": 1.05e-3}, {"one": 1.0, "other": 0.5}, (PRODUCT, SUM, TINY)),
    {},
)


class ComparisonTest(absltest.TestCase):
    def measure(self, secs, *, more=""):
        """Writes a measurement: for each case its seconds by precision, or the error."""
        lines = [{"device": {"type": "cuda", "name": "NVIDIA toy"}}]
        lines += [{"limit": "launch", "secs": 2e-6, "host_secs": 4e-6}]
        for case, value in secs.items():
            row = {"case": case, "call": "torch.f"}
            names = ("secs", "cached_secs", "host_secs")
            row |= {"error": value} if isinstance(value, str) else dict.fromkeys(names, value)
            lines.append(row)
        text = "\n".join(map(json.dumps, lines)) + more
        path = pathlib.Path(self.create_tempdir(), "measured.jsonl")
        path.write_text(text)
        return path

    def read(self, secs, **kwargs):
        return read_measurement(self.measure(secs, **kwargs), CASES.cases)

    def test_model_is_that_of_the_analytic_costs(self):
        self.assertAlmostEqual(modeled_secs(1e9, 1e6, CLASS), 1e-5 + 1e-3)
        self.assertAlmostEqual(modeled_secs(0.0, 1e7, CLASS), 1e-5 + 1e-4)

    def test_what_takes_as_long_as_modeled_has_ratio_one_and_changes_nothing(self):
        secs = {
            each.key: {"float32": modeled_secs(each.flops, each.touched_bytes, CLASS)}
            for each in CASES.cases
        }
        found = Comparison(self.read(secs).cases, CASES, CLASS)
        for row in found.kinds():
            self.assertAlmostEqual(row["sum"], 1.0)
            self.assertAlmostEqual(row["median"], 1.0)
        self.assertAlmostEqual(sum(row["of modeled time"] for row in found.kinds()), 1.0)
        self.assertAlmostEqual(found.fitted.compute_fraction, 0.5, places=4)
        self.assertAlmostEqual(found.fitted.bandwidth_fraction, 0.5, places=4)
        self.assertAlmostEqual(found.fitted.launch_secs, 1e-5, places=9)
        one, other = found.models()
        self.assertEqual((one["model"], other["model"]), ("one", "other"))
        for row in (one, other):
            self.assertAlmostEqual(row["measured"], row["modeled"])
        self.assertAlmostEqual(one["modeled"], 2 * 1.01e-3 + 1.1e-4)
        self.assertAlmostEqual(one["covered"], 1.0)
        self.assertAlmostEqual(other["covered"], 0.5)

    def test_tf32_counts_where_it_was_measured(self):
        secs = {PRODUCT.key: {"float32": 8e-3, "tf32": 5.05e-4}, TINY.key: {"float32": 5e-6}}
        found = Comparison(self.read(secs).cases, CASES, CLASS)
        by_kind = {row["kind"]: row for row in found.kinds()}
        self.assertAlmostEqual(by_kind["matrix product"]["sum"], 0.5)
        # 1e9 flops in 500 us beyond the launch of 5 us.
        self.assertAlmostEqual(found.fitted.compute_fraction, 1.0)
        self.assertAlmostEqual(by_kind["matrix product"]["reached"], 1.0)
        # Nothing measured is bound by the bandwidth.
        self.assertEqual(found.fitted.bandwidth_fraction, CLASS.bandwidth_fraction)
        self.assertIsNone(by_kind["element-wise"]["reached"])
        other = found.models()[1]
        self.assertAlmostEqual(other["measured"], 5.05e-4 + 4 * 5e-6)
        self.assertAlmostEqual(other["without TF32"], 8e-3 + 4 * 5e-6)
        self.assertAlmostEqual(other["fitted"], other["measured"])

    def test_page_names_what_failed_and_what_was_not_reached(self):
        measurement = self.read({PRODUCT.key: {"float32": 1e-3}, SUM.key: "out of memory"})
        self.assertEqual((measurement.missing, list(measurement.failures)), (1, [SUM.key]))
        found = Comparison(measurement.cases, CASES, CLASS)
        page = comparison_page(found, measurement, CLASS, "python x")
        self.assertIn("# NVIDIA toy beside the class toy of the catalogue", page)
        self.assertIn("1 failed or have no call, 1 were not reached", page)
        self.assertIn("out of memory", page)

    def test_a_measurement_that_was_killed_is_read_up_to_its_last_line(self):
        found = self.read({PRODUCT.key: {"float32": 1e-3}}, more='\n{"case": "Mat')
        self.assertLen(found.cases, 1)

    def test_other_files_are_refused(self):
        with self.assertRaisesRegex(ValueError, "has no device, or none of the cases"):
            read_measurement(self.measure({"Mul() ->": {"float32": 1e-3}}), CASES.cases)

    def test_class_is_found_by_the_name_of_the_device(self):
        def name(device, *given):
            return class_of_device({"type": "cuda", "name": device}, *given).name

        self.assertEqual(name("NVIDIA H100 80GB HBM3"), "H100")
        self.assertEqual(name("NVIDIA H200"), "H200")
        self.assertEqual(name("NVIDIA H200", "V100"), "V100")
        self.assertEqual(class_of_device({"type": "cpu", "name": "AMD"}).name, "CPU")
        with self.assertRaisesRegex(ValueError, "no class of devices 'Unheard-of'.*H100"):
            name("Unheard-of")


if __name__ == "__main__":
    absltest.main()
