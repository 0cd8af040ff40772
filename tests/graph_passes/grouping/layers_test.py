from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.colocation import find_colocation_groups
from graph_passes.grouping.grouping import OPERATIONS, PINNED, Grouping
from graph_passes.grouping.layers import number_layers
from graph_passes.op_graph import OpGraph
from tests import graph_parts as parts
from tests import graphs
from tests.graph_passes.grouping import models
from tests.graph_passes.grouping.models import Groups

tf1 = tf.compat.v1


def layers_of(graph: tf.Graph, sealed: str, free: str = "", alone: str = "") -> dict[str, int]:
    """Numbers the layers of one-operation groups, given by names separated by blanks."""
    op_graph = OpGraph.from_graph_def(graph.as_graph_def())
    colocation = find_colocation_groups(op_graph)
    kind_of = dict.fromkeys(sealed.split(), "layer") | dict.fromkeys(free.split(), OPERATIONS)
    kind_of |= dict.fromkeys(alone.split(), PINNED)
    colocated = {name: int(colocation.group[op_graph.index[name]]) for name in kind_of}
    chosen = sorted(kind_of, key=colocated.__getitem__)
    group = np.full(colocation.num_groups, -1, np.int32)
    for number, name in enumerate(chosen):
        group[colocated[name]] = number
    kinds = tuple(kind_of[name] for name in chosen)
    grouping = Grouping(group, kinds, np.array([kind != OPERATIONS for kind in kinds]))
    layers = number_layers(op_graph, colocation, grouping)
    assert layers.dtype == np.int32
    return dict(zip(chosen, layers.tolist(), strict=True))


class NumberLayersTest(tf.test.TestCase, parameterized.TestCase):
    def test_sealed_groups_that_share_a_variable_are_one_layer_with_it(self):
        with parts.new_graph() as graph:
            value = tf.ones([2, 4], name="start")
            for layer in range(2):
                weights = parts.weight_variable(f"w{layer}", [4, 4], use_resource=False)
                for step in range(3):
                    value = tf.matmul(value, weights, name=f"product_{layer}_{step}")
        products = " ".join(f"product_{layer}_{step}" for layer in range(2) for step in range(3))
        layers = layers_of(graph, products, "start w0 w1")
        self.assertEqual(
            layers,
            {f"product_{i}_{step}": i for i in range(2) for step in range(3)}
            | {"start": 0, "w0": 0, "w1": 1},
        )

    def test_scalar_variable_joins_nothing(self):
        with parts.new_graph() as graph:
            rate = tf1.get_variable("rate", [], use_resource=False)
            value = tf.ones([2, 2], name="start")
            for number in range(3):
                value = tf.multiply(value, rate, name=f"scaled_{number}")
        layers = layers_of(graph, "scaled_0 scaled_1 scaled_2", "rate")
        self.assertEqual([layers[f"scaled_{i}"] for i in range(3)], [0, 1, 2])

    def test_first_contraction_determines_the_number_of_a_layer(self):
        with parts.new_graph() as graph:
            labels = tf.ones([2, 4], name="labels")
            second = parts.weight_variable("w1", [4, 4], use_resource=False)
            # This product is first in the graph but belongs to the last layer.
            early = tf.square(labels, name="early")
            first = parts.weight_variable("w0", [4, 4], use_resource=False)
            lower = tf.matmul(tf.zeros([2, 4]), first, name="lower")
            upper = tf.matmul(lower, second, name="upper")
            tf.add(upper, early, name="loss")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        colocation = find_colocation_groups(op_graph)
        group = np.full(colocation.num_groups, -1, np.int32)
        for name, number in {"early": 1, "upper": 1, "w1": 1, "lower": 0, "w0": 0}.items():
            group[colocation.group[op_graph.index[name]]] = number
        grouping = Grouping(group, ("layer", "layer"), np.ones(2, bool))
        self.assertEqual(number_layers(op_graph, colocation, grouping).tolist(), [0, 1])

    def test_other_groups_belong_to_a_neighboring_layer(self):
        with parts.new_graph() as graph:
            value = tf.ones([4, 4], name="before")
            ends = []
            for number in range(3):
                weights = parts.weight_variable(f"w{number}", [4, 4], use_resource=False)
                value = tf.matmul(value, weights, name=f"product_{number}")
                ends.append(value)
            tf.negative(tf.add_n(ends[:2], name="sum"), name="after_sum")
            tf.zeros([2], name="apart")
        layers = layers_of(graph, "product_0 product_1 product_2", "before sum after_sum w2 apart")
        self.assertEqual(layers["before"], 0)
        self.assertEqual(layers["sum"], 1)
        self.assertEqual(layers["after_sum"], 1)
        self.assertEqual(layers["w2"], 2)
        self.assertEqual(layers["apart"], 0)

    def test_without_shared_variables_each_group_is_a_layer(self):
        with tf.Graph().as_default() as graph:
            first = tf.ones([2], name="first")
            tf.strings.as_string(tf.negative(first, name="second"), name="text")
        self.assertEqual(
            layers_of(graph, "", "first second", "text"), {"first": 0, "second": 1, "text": 2}
        )

    def test_long_path_to_a_layer_needs_no_recursion(self):
        with parts.new_graph() as graph:
            weights = parts.weight_variable("w", [2, 2], use_resource=False)
            value = tf.matmul(tf.ones([2, 2]), weights, name="product")
            for number in range(3000):
                value = tf.negative(value, name=f"n{number}")
        layers = layers_of(graph, "product", " ".join(f"n{i}" for i in range(3000)))
        self.assertEqual(set(layers.values()), {0})

    @parameterized.parameters(*graphs.FACTORIES)
    def test_layers_are_numbered_without_gaps(self, name):
        layers = Groups(graphs.share_graph(name)).grouped.group_graph.layers
        self.assertEqual(sorted(set(layers.tolist())), list(range(layers.max() + 1)))

    def test_attention_comes_between_decoder_and_prediction(self):
        groups = Groups(models.attention_decoder("luong"))
        for step in range(models.STEPS):
            cell, attention, softmax = (
                groups.layer_of(f"step_{step}/{name}")
                for name in ("cell/MatMul", "attention/scores", "softmax/logits")
            )
            self.assertLess(cell, attention)
            self.assertLess(attention, softmax)


if __name__ == "__main__":
    tf.test.main()
