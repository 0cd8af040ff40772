"""The main job: a faster placement for the training graph of a language model."""

from __future__ import annotations

import argparse
import pathlib
import time

import tf_placer
from tf_placer.start_up_messages import hide_start_up_messages

__all__ = ["main"]


def main() -> None:
    """Builds the graph, searches, prints the table and writes what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machine", default="local:2", help="where to place (default local:2)")
    parser.add_argument("--placer", default="auto", help="who searches (default auto)")
    parser.add_argument("--max_trials", type=int, default=150, help="default 150")
    parser.add_argument("--max_secs", type=float, default=180.0, help="default 180")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument(
        "--log_dir",
        default="runs/language_model",
        help="where everything is written; an earlier search there is resumed",
    )
    args = parser.parse_args()

    # Both import TensorFlow.
    from benchmarks.models import language_model
    from tf_placer.inputs.graph_files import write_graph

    start = time.monotonic()
    model = language_model.build()
    result = tf_placer.optimize(
        model.graph,
        model.train_op,
        next(model.feeds(args.seed)),
        model.initializer,
        machine=args.machine,
        placer=args.placer,
        max_trials=args.max_trials,
        max_secs=args.max_secs,
        log_dir=args.log_dir,
        seed=args.seed,
    )
    graph_path = pathlib.Path(args.log_dir) / "placed_graph.pb"
    if result.log_dir is not None:
        write_graph(graph_path, result.graph_def)
        print(f"\n{result.table()}\n")
    if result.explanation is not None:
        print(f"{result.explanation_table()}\n")
    print(f"{'placed' if result.changed else 'unchanged'}: {result.reason}")
    if result.log_dir is not None:
        print(f"graph:     {graph_path}")
        print(f"log:       {args.log_dir} (python -m tf_placer log {args.log_dir})")
    if result.placement is not None:
        print(f"placement: {args.log_dir}/placement.json")
    print(f"took {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    with hide_start_up_messages():
        main()
