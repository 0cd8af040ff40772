"""Trains the policy that is shipped, or one that has not seen some families of models.

Problems are made first: the models of the catalogue that may be seen, and generated steps. They are
written to --runs_dir, and `tf_placer pretrain` trains on them.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from collections.abc import Collection, Mapping

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.problems.paper import ProblemKey, make_problems, problem_path
from benchmarks.search_quality.random_steps import random_step
from tf_placer.cli.main import main as tf_placer
from tf_placer.problem.problem_file import write_problem

__all__ = ["FAMILIES", "HELD_OUT", "main", "training_keys"]

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "language models": ("rnnlm_2:4xK80", "rnnlm_4:post-2xK80", "rnnlm_large:4xK80"),
    "translation": (
        *("nmt_2:4xK80", "nmt_4:post-4xK80", "nmt_8:post-8xK80", "nmt_large:4xK80"),
        *("gnmt_4:eagle-4xP100", "gnmt_4_wide:eagle-4xP100"),
    ),
    "inception": (
        *("inception_v3:4xK80", "inception_v3_batch_1:eagle-4xP100"),
        *("inception_v3_towers:4xK80", "inception_v3_async_towers:4xK80"),
    ),
    "resnet": ("resnet_50:post-4xK80", "resnet_101:post-8xK80", "resnet_200:post-2xK80"),
    "transformers": ("bert_base:eagle-4xP100", "decoder_only:4xV100"),
    "mixture of experts": ("mixture_of_experts:4xA100",),
    "nasnet": ("nasnet_a:4xV100",),
    "two towers": ("two_towers:4xA100",),
}
"""The problems of `comparison` by what they are like."""

HELD_OUT = ("language models", "transformers", "nasnet")
"""The families that the shipped policy has not seen."""

_SHIPPED = "tf_placer/placers/learned/data/graph_neural.weights.h5"
_GENERATED = 20
_GENERATED_GROUPS, _GENERATED_DEVICES = (20, 150), (2, 8)


def training_keys(held_out: Collection[str]) -> list[ProblemKey]:
    """Lists the problems of the catalogue that may be seen.

    Args:
        held_out: names of families that may not.

    Raises:
        ValueError: there is no such family.
    """
    if unknown := sorted(set(held_out) - FAMILIES.keys()):
        raise ValueError(f"no family {unknown[0]!r}; there are {', '.join(FAMILIES)}")
    pairs = [
        text.split(":") for name, each in FAMILIES.items() if name not in held_out for text in each
    ]
    return [ProblemKey(model, machine, "coarse") for model, machine in pairs]


def _generated(number: int, directory: pathlib.Path) -> pathlib.Path:
    """Writes a generated step."""
    path = directory / f"generated_{number}.json"
    random = np.random.default_rng(number)
    sizes = (
        int(random.integers(low, high, endpoint=True))
        for low, high in (_GENERATED_GROUPS, _GENERATED_DEVICES)
    )
    write_problem(random_step(random, *sizes), path)
    return path


def main() -> None:
    """Makes the problems that are missing, and trains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--held_out",
        default=",".join(HELD_OUT),
        help="families that are not seen, by comma (default: %(default)s)",
    )
    parser.add_argument("--updates", type=int, default=2000, help="default 2000")
    parser.add_argument("--runs_dir", default="runs/tables", help="for problems")
    parser.add_argument("--output", default=_SHIPPED, help="default: %(default)s")
    args = parser.parse_args()
    try:
        keys = training_keys([name for name in args.held_out.split(",") if name])
    except ValueError as error:
        parser.error(f"--held_out: {error}")
    problems_dir = pathlib.Path(args.runs_dir, "problems")
    if failures := make_problems(keys, problems_dir):
        sys.exit("\n".join(failures.values()))
    problems = [problem_path(key, problems_dir) for key in keys]
    problems += [_generated(number, problems_dir) for number in range(_GENERATED)]
    pathlib.Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    tf_placer(
        [
            *("pretrain", "--problems", *map(str, problems), "--output", args.output),
            *("--updates", str(args.updates), "--seed", "0"),
        ]
    )


if __name__ == "__main__":
    main()
