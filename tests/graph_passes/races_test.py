"""Tests of races: unordered reads and writes of variables."""

from __future__ import annotations

import tensorflow as tf
from absl.testing import parameterized

from graph_passes.colocation import find_colocation_groups
from graph_passes.op_graph import OpGraph
from graph_passes.races import find_races, list_values_of_chance
from tests import graphs
from tests.graph_parts import control_flow, new_graph

tf1 = tf.compat.v1


def step_counter(*, ordered: bool, use_resource: bool = False) -> tf.Graph:
    """Builds a step counter, and a learning rate that is computed from it."""
    with new_graph() as graph:
        step = tf1.get_variable(
            "step", initializer=0, dtype=tf.int32, trainable=False, use_resource=use_resource
        )
        rate = tf.multiply(tf.cast(tf.identity(step, "alias"), tf.float32, "cast"), 0.1, "rate")
        with tf.control_dependencies([rate] if ordered else []):
            assign = step.assign(step + 1, read_value=False)
        tf.group(assign, rate, name="train")
    return graph


def read_or_write(v: tf1.Variable) -> None:
    """Reads or writes a variable in a conditional, "y", and reads it as "z"."""
    taken = tf1.cond(
        tf1.placeholder(tf.bool, []),
        lambda: tf.identity(v.assign_add([1.0, 1.0])),
        lambda: tf.exp(v.read_value()),
    )
    tf.identity(taken, name="y")
    tf.tanh(v.read_value(), name="z")


def read(graph: tf.Graph, *fetches: str) -> OpGraph:
    return OpGraph.from_graph_def(graph.as_graph_def(), fetches)


class FindRacesTest(tf.test.TestCase, parameterized.TestCase):
    def describe_races(self, graph: OpGraph) -> list[tuple[str, str, list[str], str]]:
        names = graph.names
        return [
            (names[r.variable], names[r.reader], [names[a] for a in r.aliases], names[r.writer])
            for r in find_races(graph)
        ]

    def test_finds_unordered_reads_through_aliases(self):
        graph = read(step_counter(ordered=False), "train")
        [(variable, reader, aliases, writer)] = self.describe_races(graph)
        self.assertEqual((variable, reader, writer), ("step", "cast", "Assign"))
        self.assertEqual(aliases[-1], "alias")

    def test_fetched_aliases_are_read_until_the_step_ends(self):
        for ordered in (False, True):
            graph = read(step_counter(ordered=ordered), "alias:0", "train")
            races = [race for race in self.describe_races(graph) if race[1] == "alias"]
            self.assertEqual(races, [("step", "alias", ["step/read", "alias"], "Assign")])
        self.assertEqual(
            self.describe_races(read(step_counter(ordered=True), "rate:0", "train")), []
        )

    def test_fetched_aliases_after_the_write_do_not_race(self):
        with new_graph() as graph:
            step = tf1.get_variable("step", initializer=0, use_resource=False)
            with tf.control_dependencies([step.assign(step + 1, read_value=False)]):
                tf.identity(step, "written")
        self.assertEqual(self.describe_races(read(graph, "written:0")), [])

    def test_ordered_reads_do_not_race(self):
        self.assertEqual(find_races(read(step_counter(ordered=True), "train")), [])

    def test_operations_outside_the_step_do_not_race(self):
        self.assertEqual(find_races(read(step_counter(ordered=False), "rate")), [])

    def test_without_a_step_there_are_no_races(self):
        graph_def = step_counter(ordered=False).as_graph_def()
        self.assertEqual(find_races(OpGraph.from_graph_def(graph_def)), [])

    def test_finds_reads_of_resource_variables(self):
        graph = read(step_counter(ordered=False, use_resource=True), "train")
        [race] = find_races(graph)
        self.assertEqual(graph.type_of(race.reader), "ReadVariableOp")
        self.assertEqual(graph.names[race.variable], "step")
        ordered = read(step_counter(ordered=True, use_resource=True), "train")
        self.assertEqual(find_races(ordered), [])

    def test_reads_after_the_write_do_not_race(self):
        with new_graph() as graph:
            v = tf1.get_variable("v", [2], use_resource=False)
            with tf.control_dependencies([v.assign_add([1.0, 1.0])]):
                tf.exp(v.read_value(), name="y")
        self.assertEqual(find_races(read(graph, "y")), [])

    def test_finds_uses_after_the_write_of_values_read_before_it(
        self,
    ):
        with new_graph() as graph:
            v = tf1.get_variable("v", [2], use_resource=False)
            taken = tf.identity(v, "taken")
            with tf.control_dependencies([v.assign_add([1.0, 1.0])]):
                tf.multiply(taken, 0.1, name="average")
        [(variable, reader, aliases, writer)] = self.describe_races(read(graph, "average"))
        self.assertEqual(
            (variable, reader, aliases[-1], writer), ("v", "average", "taken", "AssignAdd")
        )

    def test_reads_between_two_writes_race_with_the_unordered_one(self):
        with new_graph() as graph:
            v = tf1.get_variable("v", [2], use_resource=False)
            y = tf.exp(v, name="y")
            with tf.control_dependencies([y]):
                first = v.assign_add([1.0, 1.0], name="after").op
            tf.group(first, v.assign_sub([1.0, 1.0], name="unordered").op, name="all")
        self.assertEqual(
            [(reader, writer) for _, reader, _, writer in self.describe_races(read(graph, "all"))],
            [("y", "unordered")],
        )

    def test_exclusive_branches_do_not_race(self):
        for use_resource in (False, True):
            with new_graph() as graph, control_flow(v2=False):
                read_or_write(tf1.get_variable("v", [2], use_resource=use_resource))
            self.assertEqual(find_races(read(graph, "y")), [])
            self.assertLen(find_races(read(graph, "y", "z")), 1)

    def test_branches_that_only_read_are_no_writers(self):
        with new_graph() as graph, control_flow(v2=True):
            v = tf1.get_variable("v", [2], use_resource=True)
            p = tf1.placeholder(tf.bool, [])
            tf.tanh(v.read_value(), name="y")
            tf1.cond(p, lambda: tf.exp(v), lambda: tf.tanh(v), name="reads")
            tf1.cond(p, lambda: v.assign_add([1.0, 1.0]), lambda: v.read_value(), name="writes")
        self.assertEqual(find_races(read(graph, "y", "reads")), [])
        [(_, reader, _, writer)] = self.describe_races(read(graph, "reads", "writes"))
        self.assertEqual((reader, writer), ("reads", "writes"))

    @parameterized.parameters(
        *("v1_ref_variables", "resource_variables", "while_loop_v1", "while_loop_v2"),
        *("lstm", "small_convnet", "residual_convnet", "cond_v1", "cond_v2"),
    )
    def test_gradients_are_ordered_with_updates(self, name):
        made = graphs.FACTORIES[name]()
        graph = OpGraph.from_graph_def(made.graph.as_graph_def(), made.fetches, made.feeds)
        self.assertEqual(find_races(graph), [])


class JoinRacesTest(tf.test.TestCase):
    def test_races_are_joined(self):
        for ordered in (False, True):
            graph = read(step_counter(ordered=ordered), "train")
            groups = find_colocation_groups(graph)
            step, cast, add, rate = (
                groups.group[graph.index[name]] for name in ("step", "cast", "add", "rate")
            )
            self.assertEqual(step == cast, not ordered)
            self.assertEqual(step == add, not ordered)
            self.assertNotEqual(step, rate)
            self.assertLen(groups.races, not ordered)

    def test_asynchronous_towers_are_not_joined(self):
        for use_resource in (False, True):
            with new_graph() as graph:
                v = tf1.get_variable("v", [4, 4], use_resource=use_resource)
                updates = []
                for tower in range(2):
                    with tf1.name_scope(f"tower_{tower}/"):
                        # The gradient of Exp reads its result.
                        loss = tf.exp(v, name="loss")
                        [gradient] = tf.gradients(loss, v)
                        optimizer = tf1.train.GradientDescentOptimizer(0.1)
                        updates.append(optimizer.apply_gradients([(gradient, v)]))
                tf.group(*updates, name="train")
            op_graph = read(graph, "train")
            groups = find_colocation_groups(op_graph)
            first, second, variable = (
                groups.group[op_graph.index[name]] for name in ("tower_0/loss", "tower_1/loss", "v")
            )
            self.assertLen({first, second, variable}, 3)
            self.assertNotEmpty(groups.races)
            self.assertTrue(all(race.is_asynchronous for race in groups.races))
            values = list_values_of_chance(op_graph, groups.races)
            self.assertContainsSubset(["v", "tower_0/loss", "tower_1/loss"], values)
            self.assertNotIn("train", values)  # "train" only has control inputs.

    def test_values_of_other_races_are_not_asynchronous(self):
        graph = read(step_counter(ordered=False), "train")
        self.assertEmpty(list_values_of_chance(graph, find_races(graph)))

    def test_races_of_resource_variables_are_joined(self):
        graph = read(step_counter(ordered=False, use_resource=True), "train")
        groups = find_colocation_groups(graph)
        self.assertEqual(groups.group[graph.index["add"]], groups.group[graph.index["step"]])
        self.assertLen(groups.races, 1)

    def test_late_writes_join_only_reader_and_variable(self):
        with new_graph() as graph:
            v = tf1.get_variable("v", [2], use_resource=False)
            loss = tf.reduce_sum(tf.exp(v), name="loss")
            late = tf.constant(1.0)
            for _ in range(30):
                late = tf.tanh(late)
            tf.group(v.assign(v * late).op, loss, name="train")
        op_graph = read(graph, "train")
        groups = find_colocation_groups(op_graph)
        self.assertEqual([op_graph.type_of(race.reader) for race in groups.races], ["Exp"])
        exp = groups.races[0].reader
        self.assertEqual(groups.group[exp], groups.group[op_graph.index["v"]])

    def test_pinned_readers_are_not_joined(self):
        with new_graph() as graph:
            v = tf1.get_variable("v", [2], use_resource=False)
            written = v.assign_add([1.0, 1.0]).op
            tf.group(written, tf1.summary.histogram("h", v), name="train")
        op_graph = read(graph, "train")
        groups = find_colocation_groups(op_graph)
        self.assertEqual([op_graph.names[race.reader] for race in groups.races], ["h"])
        self.assertFalse(groups.pinned[groups.group[op_graph.index["v"]]])


if __name__ == "__main__":
    tf.test.main()
