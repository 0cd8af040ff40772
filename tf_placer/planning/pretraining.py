"""The training of a policy on simulated placements of problems, for searches on other problems."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_placer.errors import require_tensorflow
from tf_placer.files import check_output, read_json, write_json
from tf_placer.problem.coarse_groups import coarse_problem
from tf_placer.problem.problem_file import read_problem
from tf_placer.search.config import check_seed
from tf_placer.search.log_header import package_versions

if TYPE_CHECKING:
    from tf_placer.placers.learned.pretraining import PretrainedProblem

__all__ = ["pretrain_policy"]

_POLICY = "graph_neural"


def pretrain_policy(
    paths: Sequence[str],
    output: str,
    *,
    updates: int,
    seed: int,
    report: Callable[[int, Sequence[PretrainedProblem]], None],
) -> list[dict[str, Any]]:
    """Trains a graph-neural policy on problems, and writes its weights.

    A JSON file of the same name records the problems and the settings of the training. An
    interrupt ends the training early and keeps the weights so far.

    Args:
        paths: files of problems, used in turn.
        output: the file of the weights (.weights.h5).
        updates: number of updates over all problems.
        seed: seed of all random choices.
        report: called with the number of updates so far, and the state of each problem.

    Returns:
        For each problem, JSON values: its size, its updates, and its step times in seconds.

    Raises:
        ImportError: TensorFlow is not installed.
        KeyboardInterrupt: the training was interrupted in its first update.
        OSError: a file cannot be read or written.
        ValueError: a problem or an argument is wrong.
    """
    require_tensorflow()
    import tensorflow as tf

    from tf_placer.placers.learned.graph_neural import (
        WEIGHTS_SUFFIX,
        GraphNeuralConfig,
        GraphNeuralNetwork,
    )
    from tf_placer.placers.learned.pretraining import PretrainingConfig, pretrain
    from tf_placer.placers.learned.weights_file import compute_max_bytes, write_weights

    check_seed(seed)
    if not output.endswith(WEIGHTS_SUFFIX):
        raise ValueError(f"--output must end in {WEIGHTS_SUFFIX}, unlike {output!r}")
    about = output.removesuffix(WEIGHTS_SUFFIX) + ".json"
    for path in (output, about):
        check_output(path, *paths)
    _check_about(about)
    # The policy places coarse groups if the problem has some.
    problems = [coarse_problem(read_problem(path))[0] for path in paths]
    # Hide TensorFlow's warnings of retracing: each problem has functions of its own.
    tf.get_logger().setLevel("ERROR")
    network_config, config = GraphNeuralConfig(), PretrainingConfig()
    network = GraphNeuralNetwork(network_config, seed)
    results = pretrain(network, problems, updates=updates, seed=seed, config=config, report=report)
    write_weights(network.save_weights, output, compute_max_bytes(network.weights))
    write_json(
        about,
        {
            "format": 1,
            "policy": _POLICY,
            "settings": dataclasses.asdict(network_config),
            "training": dataclasses.asdict(config),
            "problems": list(paths),
            "updates": sum(result.updates for result in results),
            "seed": seed,
            "versions": package_versions(),
            "sha256": hashlib.sha256(pathlib.Path(output).read_bytes()).hexdigest(),
        },
    )
    return [
        {
            "problem": path,
            "groups": problem.num_groups,
            "devices": problem.num_devices,
            "updates": result.updates,
            "first_mean_secs": _finite(result.first_mean_secs),
            "last_mean_secs": _finite(result.last_mean_secs),
            "best_secs": _finite(result.best_secs),
        }
        for path, problem, result in zip(paths, problems, results, strict=True)
    ]


def _finite(secs: float) -> float | None:
    return float(secs) if np.isfinite(secs) else None


def _check_about(path: str) -> None:
    """Checks that the description of the weights replaces no other kind of file.

    Raises:
        OSError: another kind of file exists, or the file cannot be read.
    """
    if not os.path.exists(path):
        return
    try:
        is_own = read_json(path)["policy"] == _POLICY
    except (KeyError, TypeError, ValueError):
        is_own = False
    if not is_own:
        raise OSError(
            f"{path!r} is there, and does not describe weights: what describes the new ones would "
            "replace it, so give --output another name"
        )
