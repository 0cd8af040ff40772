"""What a search should find: all there is to gain, and nothing where there is nothing.

Two graphs of matrix products of random data on `local:2`: two independent branches, which a split
runs almost twice as fast, and one long chain, in which every operation waits for the one before, so
that no placement can speed it up.

References:
    None of the papers has these two; they are the plainest cases with a known answer.
"""

from __future__ import annotations

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

import tf_placer
from tf_placer.text.table import table

__all__ = ["chain", "main", "two_branches"]

tf1 = tf.compat.v1


def _products(seed: int, size: int, depth: int) -> tf.Tensor:
    # Random weights per product: equal branches would be merged into one.
    value = tf1.random_uniform([size, size], seed=seed)
    for number in range(depth):
        weights = tf1.random_uniform([size, size], -1.0, 1.0, seed=1000 * seed + number)
        value = tf.matmul(value, weights) / size
    return value


def two_branches(size: int = 1024, depth: int = 8) -> tf.Graph:
    """Builds two chains of products of different data whose sum is fetched as "y:0"."""
    with tf.Graph().as_default() as graph:
        tf.reduce_sum(_products(1, size, depth) + _products(2, size, depth), name="y")
    return graph


def chain(size: int = 1024, depth: int = 16) -> tf.Graph:
    """Builds one chain of squares of a matrix whose sum is fetched as "y:0"."""
    with tf.Graph().as_default() as graph:
        value = tf1.random_uniform([size, size], seed=1)
        for _ in range(depth):
            product = tf.matmul(value, value)
            # Neither too large nor too small, however long the chain is.
            value = product / tf.reduce_max(product)
        tf.reduce_sum(value, name="y")
    return graph


def main() -> None:
    """Optimises both graphs and prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--max_trials", type=int, default=29, help="per graph (default 29)")
    parser.add_argument("--max_secs", type=float, default=240.0, help="per graph (default 240)")
    parser.add_argument("--log_dir", default="runs/branches_and_chain")
    args = parser.parse_args()
    rows = []
    for name, graph in (("two branches", two_branches()), ("one chain", chain())):
        result = tf_placer.optimize(
            graph,
            "y:0",
            machine="local:2",
            max_trials=args.max_trials,
            max_secs=args.max_secs,
            log_dir=pathlib.Path(args.log_dir) / name.replace(" ", "_"),
        )
        print(f"\n{name}\n{result.table()}\n")
        low, high = result.speedup_interval or (float("nan"), float("nan"))
        speedup = f"{result.speedup:.2f}x ({low:.2f} to {high:.2f})" if result.speedup else ""
        verdict = "placed" if result.changed else "unchanged"
        rows.append([name, str(len(result.trials)), verdict, speedup, result.reason])
    print(table(["graph", "trials", "result", "speed-up", "reason"], rows, "lrlll"))


if __name__ == "__main__":
    main()
