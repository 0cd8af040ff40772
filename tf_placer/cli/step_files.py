"""Files of simulated steps for Perfetto and TensorBoard."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tf_placer.files import write_json
from tf_placer.planning.simulated_step import SimulatedStep
from tf_placer.report.chrome_trace import chrome_trace

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["write_steps"]


def write_steps(
    args: argparse.Namespace,
    steps: Mapping[str, SimulatedStep],
    graph_def: tf.compat.v1.GraphDef | None,
) -> list[str]:
    """Writes the files that --trace and --tensorboard ask for.

    Args:
        args: the arguments of `simulate`.
        steps: the steps by name, such as "original".
        graph_def: the graph of the steps; None for a problem file.

    Returns:
        A line of text about each file.
    """
    traces = {name: step.trace for name, step in steps.items() if step.trace is not None}
    lines = []
    if args.trace is not None:
        write_json(args.trace, chrome_trace(traces))
        lines.append(f"trace: {args.trace}")
    if args.tensorboard is not None and graph_def is not None:
        from tf_placer.live.step_events import write_step_events

        write_step_events(args.tensorboard, graph_def, traces)
        lines.append(f"tensorboard --logdir {args.tensorboard}")
    return lines
