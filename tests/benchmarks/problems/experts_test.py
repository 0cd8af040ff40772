"""Every layer of the models is where the rules of the papers say."""

from __future__ import annotations

import functools
import re

import numpy as np
from absl.testing import absltest, parameterized

from benchmarks.models import catalog
from benchmarks.problems import experts
from graph_passes.pipeline import group_operations
from tf_placer.inputs.workload import read_workload

GPUS = 4


@functools.cache
def group_model(name: str):
    """Names and groups of the operations of a small model."""
    model = catalog.build_model(name, small=True)
    workload = read_workload(model.graph, [model.train_op, model.loss])
    grouped = group_operations(workload.op_graph)
    return workload.op_graph.names, grouped.grouping.expand_to_operations(grouped.colocation)


def expert_devices(name: str, rule: str, num_gpus: int = GPUS) -> dict[str, int]:
    """The device of every operation that is in a group."""
    names, groups = group_model(name)
    legal = np.ones([groups.max() + 1, 1 + num_gpus], bool)
    placement = experts.expert_placements(name, names, groups, legal, num_gpus)[rule]
    return {o: int(placement[g]) for o, g in zip(names, groups, strict=True) if g >= 0}


def devices_of(devices: dict[str, int], pattern: str) -> set[int]:
    """Finds the devices of the operations whose names match."""
    found = {device for name, device in devices.items() if re.search(pattern, name)}
    assert found, pattern
    return found


class ExpertsTest(parameterized.TestCase):
    @parameterized.parameters(
        # Two layers have a GPU each; four layers on two GPUs have one per half.
        ("rnnlm_2", 4, [1, 2]),
        ("rnnlm_2", 1, [1, 1]),
        ("rnnlm_4", 2, [1, 1, 2, 2]),
        ("rnnlm_4", 3, [1, 1, 2, 3]),
    )
    def test_rnnlm_has_layers_in_order_and_ends_with_their_neighbors(self, name, gpus, layers):
        devices = expert_devices(name, "expert", gpus)
        for layer, device in enumerate(layers):
            # The steps, their gradients, and the update of the weights.
            for pattern in (rf"^layer_{layer}/step", rf"^gradients/layer_{layer}/step_\d+/MatMul"):
                self.assertEqual(devices_of(devices, pattern), {device}, pattern)
            update = rf"^train/update_layer_{layer}/kernel"
            self.assertEqual(devices_of(devices, update), {device})
        self.assertEqual(devices_of(devices, "^embedding/embedding_lookup"), {layers[0]})
        self.assertEqual(devices_of(devices, r"^softmax/step_\d+/MatMul"), {layers[-1]})

    def test_nmt_merged_has_attention_and_softmax_with_the_last_layer(self):
        devices = expert_devices("nmt_2", "expert_merged")
        for side in ("encoder", "decoder"):
            for layer in (0, 1):
                pattern = rf"^{side}/layer_{layer}/step_\d+/MatMul"
                self.assertEqual(devices_of(devices, pattern), {1 + layer})
        self.assertEqual(devices_of(devices, "^(source|target)_embedding/embedding_lookup"), {1})
        self.assertEqual(devices_of(devices, r"^decoder/attention/step_\d+/Softmax"), {2})
        self.assertEqual(devices_of(devices, r"^softmax/step_\d+/MatMul"), {2})

    def test_nmt_split_has_attention_and_softmax_on_gpus_of_their_own(self):
        devices = expert_devices("nmt_2", "expert_split")
        self.assertEqual(devices_of(devices, r"^decoder/layer_0/step_\d+/MatMul"), {1})
        self.assertEqual(devices_of(devices, r"^encoder/layer_1/step_\d+/MatMul"), {2})
        self.assertEqual(devices_of(devices, r"^decoder/attention/step_\d+/Softmax"), {3})
        self.assertEqual(devices_of(devices, r"^softmax/step_\d+/MatMul"), {4})

    def test_nmt_split_shares_two_gpus_evenly(self):
        devices = expert_devices("nmt_2", "expert_split", 2)
        self.assertEqual(devices_of(devices, r"coder/layer_[01]/step_\d+/MatMul"), {1})
        self.assertEqual(devices_of(devices, r"^(decoder/attention|softmax)/step_\d+/"), {2})

    def test_gnmt_goes_around(self):
        devices = expert_devices("gnmt_4", "expert", 3)
        # Three layers, then the attention and the softmax.
        self.assertEqual(devices_of(devices, r"^encoder/layer_0/forward/step_\d+/MatMul"), {1})
        self.assertEqual(devices_of(devices, r"^encoder/layer_0/backward/step_\d+/MatMul"), {1})
        for layer in range(3):
            pattern = rf"^decoder/layer_{layer}/step_\d+/MatMul"
            self.assertEqual(devices_of(devices, pattern), {1 + layer})
        self.assertEqual(devices_of(devices, r"^decoder/attention/step_\d+/Softmax"), {1})
        self.assertEqual(devices_of(devices, r"^softmax/MatMul"), {2})

    def test_mixture_of_experts_has_them_on_all_gpus_and_its_layers_in_order(self):
        devices = expert_devices("mixture_of_experts", "expert", 2)
        for expert in range(4):
            pattern = rf"^layer_1/expert_{expert}/.*MatMul"
            self.assertEqual(devices_of(devices, pattern), {1 + expert % 2})
        self.assertEqual(devices_of(devices, r"^layer_0/attention/.*MatMul"), {1})
        self.assertEqual(devices_of(devices, r"^layer_1/attention/.*MatMul"), {2})

    def test_recommender_has_its_tables_on_the_cpu(self):
        devices = expert_devices("two_towers", "expert")
        self.assertEqual(devices_of(devices, "^embedding_.*/embedding_lookup"), {0})
        self.assertEqual(devices_of(devices, "^train/update_embedding_.*/weights"), {0})
        self.assertEqual(devices_of(devices, "_tower/.*MatMul"), {1})

    def test_wide_and_deep_has_the_weights_of_rows_on_the_cpu(self):
        devices = expert_devices("wide_and_deep", "expert")
        for pattern in ("^embedding_.*/weights$", "^wide/", "^train_wide/update_wide/"):
            self.assertEqual(devices_of(devices, pattern), {0}, pattern)
        self.assertEqual(devices_of(devices, "^train_deep/update_embedding_.*/weights"), {0})
        self.assertEqual(devices_of(devices, "^deep/(layer_0|Relu)"), {1})

    @parameterized.parameters("inception_v3_towers", "inception_v3_async_towers")
    def test_towers_have_a_gpu_each_and_variables_are_on_the_cpu(self, name):
        names = []
        for tower in range(4):
            names += [f"tower_{tower}/stem/conv_0/Conv2D", f"tower_{tower}/gradients/AddN_7"]
        names += ["stem/conv_0/kernel", "train/update_stem/conv_0/kernel/ApplyRMSProp"]
        names += ["tower_3/train/update_stem/conv_0/kernel/ApplyRMSProp", "images"]
        placements = experts.expert_placements(
            name, names, np.arange(len(names)), np.ones([len(names), 4], bool), 3
        )
        np.testing.assert_array_equal(placements["expert"], [1, 1, 2, 2, 3, 3, 1, 1, 0, 0, 0, 0])

    @parameterized.parameters("inception_v3", "inception_v3_batch_1", "resnet_200", "nasnet_a")
    def test_convolutional_networks_are_on_one_gpu(self, name):
        placements = experts.expert_placements(
            name, ["a", "b/c"], np.array([0, 1]), np.ones([2, 3], bool), 2
        )
        self.assertEqual({k: v.tolist() for k, v in placements.items()}, {"expert": [1, 1]})

    def test_nobody_has_a_rule_for_bert(self):
        legal = np.ones([1, 3], bool)
        self.assertEmpty(experts.expert_placements("bert_base", ["a"], np.zeros(1, int), legal, 2))

    def test_most_operations_of_a_group_decide_and_the_law_comes_first(self):
        names = ["layer_1/a", "layer_1/b", "layer_0/c", "d", "layer_1/e", "layer_0/f", "layer_1/g"]
        groups = np.array([0, 0, 0, 1, 2, 3, -1])
        legal = np.ones([4, 3], bool)
        legal[2] = [True, False, False]  # Only the CPU has a kernel.
        legal[3] = [False, False, True]
        placement = experts.expert_placements("rnnlm_2", names, groups, legal, 2)["expert"]
        self.assertEqual(placement.dtype, np.int32)
        self.assertEqual(placement.tolist(), [2, 1, 0, 2])

    def test_every_model_has_a_rule_or_none_on_purpose(self):
        for name in catalog.MODELS:
            legal = np.ones([1, 5], bool)
            rules = experts.expert_placements(name, ["loss"], np.zeros(1, np.int32), legal, 4)
            self.assertEqual(not rules, name == "bert_base", name)


if __name__ == "__main__":
    absltest.main()
