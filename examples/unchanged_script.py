"""A training script of the TF1 kind that does not use tf_placer.

Two towers read users and items. This runs the script with its training step placed:

    python -m tf_placer run --machine local:2 examples/unchanged_script.py

Checkpoints are compatible with those of `python examples/unchanged_script.py`.
"""

from __future__ import annotations

import argparse

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def tower(x: tf.Tensor, units: int, layers: int, name: str) -> tf.Tensor:
    """Adds one tower; returns its output, float32 [rows, units]."""
    with tf.variable_scope(name):
        for layer in range(layers):
            width = int(x.shape[1])
            initializer = tf.random_normal_initializer(stddev=(2.0 / width) ** 0.5, seed=layer)
            kernel = tf.get_variable(f"kernel_{layer}", [width, units], initializer=initializer)
            bias = tf.get_variable(f"bias_{layer}", [units], initializer=tf.zeros_initializer())
            x = tf.nn.relu(tf.matmul(x, kernel) + bias)
        return x


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", help="Checkpoint to restore and save.")
    parser.add_argument("--steps", type=int, default=50, help="Steps of this run.")
    parser.add_argument("--rows", type=int, default=256, help="Pairs per step.")
    parser.add_argument("--units", type=int, default=512, help="Units of a layer.")
    parser.add_argument("--layers", type=int, default=4, help="Layers of a tower.")
    args = parser.parse_args()

    users = tf.placeholder(tf.float32, [None, args.units], name="users")
    items = tf.placeholder(tf.float32, [None, args.units], name="items")
    scores = tf.placeholder(tf.float32, [None], name="scores")
    keep = tf.placeholder_with_default(1.0, [], name="keep")
    user = tower(users, args.units, args.layers, "users")
    item = tower(items, args.units, args.layers, "items")
    score = tf.reduce_mean(user * item, axis=1) * keep
    loss = tf.reduce_mean(tf.square(score - scores))
    step = tf.train.get_or_create_global_step()
    train = tf.train.AdamOptimizer(1e-4).minimize(loss, global_step=step)

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        # Many scripts make the saver after the session, as here.
        saver = tf.train.Saver()
        if args.checkpoint and tf.train.checkpoint_exists(args.checkpoint):
            saver.restore(session, args.checkpoint)
        first = session.run(step)
        for number in range(first, first + args.steps):
            random = np.random.default_rng(number)
            pair = random.normal(size=[2, args.rows, args.units])
            values = {users: pair[0], items: pair[1], scores: np.mean(pair[0] * pair[1], axis=1)}
            if number % 10 == 0:
                print(f"before step {number}: {session.run(loss, {**values, keep: 0.5}):.6f}")
            _, value = session.run([train, loss], values)
            print(f"step {number}: loss {value:.6f}")
        if args.checkpoint:
            saver.save(session, args.checkpoint)


if __name__ == "__main__":
    main()
