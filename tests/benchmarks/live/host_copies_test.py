"""Tests of the table of steps whose activations wait on the CPU."""

from __future__ import annotations

import pathlib
from unittest import mock

import tensorflow as tf

from benchmarks.live import host_copies


class HostCopiesTest(tf.test.TestCase):
    def test_the_graph_trains(self):
        graph = host_copies.build_deep_training(batch=4, units=3, layers=2)
        with tf.compat.v1.Session(graph=graph) as session:
            session.run("init")
            feeds = {"x:0": [[1.0, 0.0, 0.0]] * 4}
            losses = [session.run(["loss:0", "train"], feeds)[0] for _ in range(3)]
        self.assertLess(losses[2], losses[0])

    def test_the_table_has_simulated_and_measured_steps_of_what_fits(self):
        out = pathlib.Path(self.create_tempdir().full_path)
        run: list[tf.compat.v1.GraphDef] = []

        def measure(graph_def, batch, units, steps):
            run.append(graph_def)
            return 1 << 20, 0.5

        with mock.patch.object(host_copies, "measure", measure):
            host_copies.main(
                ["--batch=4096", "--layers=6", "--shares=0.8,0.01", f"--out_dir={out}"]
            )
        rows = [line for line in (out / "table.md").read_text().splitlines() if "| " in line][2:]
        self.assertRegex(rows[0], r"as it is \| 0 \| .* 1.000 MiB \| .* \| 500.0 ms")
        self.assertRegex(rows[1], r"80% \| [1-9]\d* \| .* 500.0 ms")
        self.assertIn("does not fit", rows[2])
        original, changed = ({node.name for node in each.node} for each in run)
        self.assertTrue(all(name.endswith("_host") for name in changed - original))
        self.assertNotEmpty(changed - original)


if __name__ == "__main__":
    tf.test.main()
