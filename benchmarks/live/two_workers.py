"""One search without workers and one with two: the same winner, one log, one verdict.

Places a step on `local:2`, first in one process, then by two workers of Ray on this computer, each
of which has two devices of its own. They share the cores, so what is compared is what is found, and
not how fast. The step sums up large variables, two of which are on each device: where the sums are
on the first device, as they came, two variables are sent in every step, which is slower by so much
that it is seen beside whatever else the computer does:

    python -m benchmarks.live.two_workers
"""

from __future__ import annotations

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

import tf_placer
from benchmarks.harness.table_file import write_table
from tf_placer.search.distributed.tallies import workers_table
from tf_placer.search.distributed.workers import require_ray
from tf_placer.search.trial_log import read_log
from tf_placer.text.table import table

__all__ = ["main"]

tf1 = tf.compat.v1
_ROWS, _COLUMNS = 4096, 1024
_MAX_TRIALS = 40


def _sums_of_variables() -> tuple[tf.Graph, str]:
    """Builds a step that sums up four variables, two on each device; and its initialiser."""
    with tf.Graph().as_default() as graph:
        sums = []
        for number in range(4):
            with tf.device(f"/job:worker/task:{number // 2}"):
                variable = tf1.get_variable(f"variable_{number}", [_ROWS, _COLUMNS])
            sums.append(tf.reduce_sum(tf.square(variable), name=f"sum_{number}"))
        tf.add_n(sums, name="y")
        return graph, tf1.global_variables_initializer().name


def _tasks_of_sums(graph: tf.Graph) -> str:
    """Lists the tasks of the four sums, as far as they have devices."""
    devices = [graph.get_operation_by_name(f"sum_{number}").device for number in range(4)]
    tasks = [tf1.DeviceSpec.from_string(device).task for device in devices if device]
    return ", ".join(map(str, tasks))


def main() -> None:
    """Searches twice, and writes what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--max_secs", type=float, default=300.0, help="per search (default 300)")
    parser.add_argument("--log_dir", default="runs/two_workers", help="searches there go on")
    parser.add_argument("--out_dir", default="benchmarks/results/distributed")
    args = parser.parse_args()
    require_ray()
    rows, parts = [], []
    for name, workers in (("in one process", None), ("by two workers", 2)):
        graph, initializer = _sums_of_variables()
        directory = pathlib.Path(args.log_dir, name.replace(" ", "_"))
        result = tf_placer.optimize(
            graph,
            "y:0",
            initializers=[initializer],
            machine="local:2",
            placer="hill_climbing",
            max_trials=_MAX_TRIALS,
            max_secs=args.max_secs,
            log_dir=directory,
            workers=None if workers is None else "ray",
            num_workers=workers,
        )
        _, trials = read_log(directory / "trials.jsonl")
        verdict = "placed" if result.changed else "unchanged"
        speedup = f"{result.speedup:.2f}x" if result.speedup else ""
        rows.append([name, str(len(trials)), verdict, speedup, _tasks_of_sums(graph)])
        parts += [f"{name}: {result.reason}", workers_table(trials)]
    same = "the same" if rows[0][-1] == rows[1][-1] else "another"
    head = ["search", "trials in the log", "verdict", "speed-up", "tasks of the sums"]
    parts += [table(head, rows, "lrlrl"), f"The two searches have {same} winner."]
    text = "\n\n".join(part for part in parts if part)
    write_table(text, pathlib.Path(args.out_dir, "two_workers.txt"))


if __name__ == "__main__":
    main()
