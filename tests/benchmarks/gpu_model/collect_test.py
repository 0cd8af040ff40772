from __future__ import annotations

import dataclasses

import tensorflow as tf
from absl.testing import absltest

from benchmarks.gpu_model import collect
from benchmarks.gpu_model.comparison import modeled_secs
from benchmarks.models.catalogue import build_model
from tf_placer.costs.analytic import analytic_costs
from tf_placer.inputs.sources import read_source
from tf_placer.machines.catalogue import described_machine
from tf_placer.machines.device_classes import device_classes

H100 = device_classes()["H100"]


class CollectTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cases = collect.model_operations("two_towers", small=True)

    def test_operations_of_a_model_take_what_its_step_takes_in_the_analytic_model(self):
        with tf.Graph().as_default():
            model = build_model("two_towers", small=True)
        graph = read_source(model.graph, [model.train_op, model.loss]).op_graph
        machine = described_machine("1xH100")
        gpu = next(i for i, device in enumerate(machine.devices) if device.type == "GPU")
        expected = analytic_costs(graph, machine).compute_secs[:, gpu].sum()
        found = sum(
            each.runs["two_towers"] * modeled_secs(each.flops, each.touched_bytes, H100)
            for each in self.cases
        )
        self.assertAlmostEqual(found / expected, 1.0, places=9)

    def test_a_product_has_its_shapes_attributes_and_work(self):
        products = [each for each in self.cases if each.op_type == "MatMul"]
        transposed = [each for each in products if each.attributes.get("transpose_b")]
        self.assertNotEmpty(transposed)
        for each in transposed:
            (rows, inner), (columns, _) = (tensor.shape for tensor in each.inputs)
            self.assertEqual(each.outputs[0].shape, (rows, columns))
            self.assertEqual(each.flops, 2.0 * rows * inner * columns)

    def test_a_handle_has_the_shape_of_its_variable(self):
        gathers = [each for each in self.cases if each.op_type == "ResourceGather"]
        self.assertIn((400, 8), [each.inputs[0].shape for each in gathers])

    def test_the_heaviest_operations_are_chosen_until_the_share_is_reached(self):
        heavy, light = self.cases[0], self.cases[1]
        heavy = dataclasses.replace(heavy, flops=1e12, runs={"a": 2.0})
        light = dataclasses.replace(light, flops=0.0, touched_bytes=0.0, runs={"a": 1.0})
        found = collect.collect_cases({"a": [light, heavy]}, H100, 0.9)
        self.assertEqual([each.key for each in found.cases], [heavy.key])
        self.assertBetween(found.covered["a"], 0.9, 1.0)
        all_cases = collect.collect_cases({"a": [light, heavy]}, H100, 1.0)
        self.assertLen(all_cases.cases, 2)


if __name__ == "__main__":
    absltest.main()
