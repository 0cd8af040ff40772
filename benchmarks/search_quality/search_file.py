"""A search of a problem file by `auto` with a budget of core seconds, in a process of its own.

This file is run by its path with the packages of any checkout, so it imports only what old ones
have, too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from tf_placer.placers.auto.auto_search import auto_search
from tf_placer.problem.problem_file import read_problem
from tf_placer.problem.problem_groups import group_graph


def main() -> None:
    """Searches, and prints the placement and the effort as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("problem", help="a problem file")
    parser.add_argument("--core_secs", type=float, required=True, help="the budget, of all threads")
    parser.add_argument("--threads", type=int, required=True, help="chains that anneal at once")
    parser.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()
    problem = read_problem(args.problem)
    groups = group_graph(problem)
    # The search must not depend on what else runs on the machine, so its clock counts the time of
    # cores.
    time.monotonic = lambda: time.process_time() / args.threads
    start_secs = time.process_time()
    result = auto_search(
        problem,
        groups,
        max_secs=args.core_secs / args.threads,
        seed=args.seed,
        threads=args.threads,
    )
    json.dump(
        {
            "placement": result.best.placement.tolist(),
            "num_simulated": result.num_simulated,
            "core_secs": time.process_time() - start_secs,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
