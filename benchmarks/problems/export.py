"""Writes the models of the catalog on described machines as problem files.

A problem file says everything about a problem that `tf_placer search` and `tf_placer simulate` need
and is described in `tf_placer/problem/README.md`, so that other tools can be tried on it, too.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.models.catalog import MODELS
from benchmarks.problems.paper import ProblemKey, make_problems, problem_path
from tf_placer.machines.catalog import list_catalog_names
from tf_placer.machines.machine import MachineError

__all__ = ["main"]


def main() -> None:
    """Makes the problems that are missing and copies them; the status is 1 if some could not be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models",
        default=",".join(MODELS),
        help=f"by comma, of {', '.join(MODELS)} (default: all)",
    )
    parser.add_argument(
        "--machines",
        default="4xK80,4xP100",
        help=f"by comma, of {list_catalog_names()} (default 4xK80,4xP100)",
    )
    parser.add_argument("--granularity", choices=("fine", "coarse"), default="fine")
    parser.add_argument("--small", action="store_true", help="models of small size")
    parser.add_argument("--runs_dir", default="runs/tables", help="where problems are kept")
    parser.add_argument("--out_dir", required=True, help="gets MODEL-MACHINE.json for each pair")
    args = parser.parse_args()
    keys = [
        ProblemKey(model, machine, args.granularity, args.small)
        for model in args.models.split(",")
        for machine in args.machines.split(",")
    ]
    problems_dir = pathlib.Path(args.runs_dir, "problems")
    try:
        failures = make_problems(keys, problems_dir)
    except (MachineError, ValueError) as error:
        parser.error(str(error))
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    for key in keys:
        if key.model not in failures:
            path = out / f"{key.model}-{key.machine}.json"
            shutil.copyfile(problem_path(key, problems_dir), path)
            print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
