"""Every kind of graph runs under legal placements, and what it saves fits the graph as it is."""

from __future__ import annotations

import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.zoo.catalogue import KINDS
from benchmarks.zoo.placed_runs import PlacedGraph, script_session, script_values, variable_values
from tf_placer.live.equal_values import describe_difference

tf1 = tf.compat.v1

_PLACEMENTS = {"coarse": 3, "fine": 1}


class PlacedGraphsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*KINDS)
    def test_computes_and_saves_the_same_wherever_it_is(self, name):
        made = KINDS[name]()
        saver = None
        with made.graph.as_default():
            if tf1.global_variables():
                saver = tf1.train.Saver()
        expected = script_values(made)
        random = np.random.default_rng(0)
        for granularity, count in _PLACEMENTS.items():
            placed = PlacedGraph(made, granularity=granularity, saver=saver and saver.saver_def)
            for _ in range(count):
                placement = placed.random_placement(random)
                values = placed.values(placement)
                if not made.is_racy:
                    self.assertIsNone(describe_difference(expected, values), str(placement))
        if saver is not None:
            self.check_checkpoints(made, saver, placed, placed.random_placement(random))

    def check_checkpoints(self, made, saver, placed, placement):
        """What one graph saves, the other restores: the placed one, and the one that it was."""
        tensors = variable_values(made.graph)
        local = {each.op.name for each in made.graph.get_collection(tf1.GraphKeys.LOCAL_VARIABLES)}
        directory = pathlib.Path(self.create_tempdir().full_path)
        path = str(directory / "placed")
        saved = placed.saved(placement, path)
        with script_session(made) as session:
            saver.restore(session, path)
            self.assertContainsSubset(self.changed(saved, session.run(tensors)), local)
            for _ in range(2):
                session.run(made.fetches, made.feeds)
            path = saver.save(session, str(directory / "script"), write_meta_graph=False)
            saved = session.run(tensors)
        self.assertContainsSubset(self.changed(saved, placed.restored(placement, path)), local)

    def changed(self, saved, restored):
        """Names of the variables whose values are not those that were saved."""
        self.assertEqual(saved.keys(), restored.keys())
        return [name for name in saved if not np.array_equal(saved[name], restored[name])]


if __name__ == "__main__":
    tf.test.main()
