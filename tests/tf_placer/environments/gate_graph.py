"""A graph whose steps hang when they are told to."""

from __future__ import annotations

import pathlib

import tensorflow as tf

__all__ = ["write_gate_graph"]

v1 = tf.compat.v1


def write_gate_graph(path: pathlib.Path, queue_device: str = "") -> None:
    """A step waits for ever on a queue as long as the file that "gate:0" names says "wait".

    Before it waits, it writes to the file whose name is the graph's and ".hung".
    """
    with tf.Graph().as_default() as graph:
        gate = v1.placeholder(tf.string, [], name="gate")
        with tf.device(queue_device):
            queue = v1.FIFOQueue(1, [tf.float32], shapes=[[]])
        waiting = tf.equal(tf.io.read_file(gate), "wait")

        def wait() -> tf.Tensor:
            with tf.control_dependencies([tf.print("hangs", output_stream=f"file://{path}.hung")]):
                return queue.dequeue()

        opened = tf.cond(waiting, wait, lambda: tf.constant(1.0))
        w = v1.get_variable("w", [8, 8], use_resource=True)
        x = tf.matmul(tf.random.normal([8, 8]), w, name="x")
        y = tf.tanh(x, name="y")
        loss = tf.reduce_mean(y) * opened
        train = w.assign_sub(y)
        tf.group(train, name="train")
        tf.identity(loss, name="loss")
        tf.group(w.initializer, name="init")
    path.write_bytes(graph.as_graph_def().SerializeToString())
