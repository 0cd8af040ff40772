"""What `auto` reaches in equal time in this source tree and in another, such as an older commit.

Every problem is searched in simulation, with the same seeds, on one core each: in both trees at a
time, so that a disturbance of the machine falls on both, and they change cores with every search.
What is done is kept in `--out_dir`, so the benchmark goes on where it stopped.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import itertools
import json
import math
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.comparison.comparison import PROBLEMS
from benchmarks.harness.numbered_runs import read_runs, write_runs
from benchmarks.harness.provenance import provenance
from benchmarks.problems.paper import ProblemKey, make_problems
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_step

__all__ = ["Reached", "against_table", "main"]

# Runs in both trees, so it uses only what both have.
_SEARCH = """
import json, pathlib, sys, time
from benchmarks.problems.paper import ProblemKey, read_paper_problem
from tf_placer.placers.auto.refined_search import refined_search
model, machine, folder, seconds, seed = sys.argv[1:]
read = read_paper_problem(ProblemKey(model, machine, "fine", False), pathlib.Path(folder))
def search(max_secs, **limits):
    return refined_search(read.problem, read.groups, max_secs=max_secs, threads=1, **limits)
search(60.0, max_simulated=50)  # What compiles when it is needed is compiled.
result = search(float(seconds), seed=int(seed))
print(json.dumps([
    None if result.best.excess_bytes else result.best.step_secs,
    result.lower_bound_secs,
    result.num_simulated,
]))
"""


@dataclasses.dataclass(frozen=True)
class Reached:
    """What both trees came to.

    Attributes:
        problem: its name.
        max_secs: of each search, on one core.
        seed: of everything random.
        other_secs: the fastest step of the other tree; infinite if nothing fits.
        step_secs: of this one.
        other_bound_secs: the lower bound that the other tree knows.
        bound_secs: the one that this one knows.
        other_simulated: placements that the other tree simulated.
        simulated: that this one did.
    """

    problem: str
    max_secs: float
    seed: int
    other_secs: float
    step_secs: float
    other_bound_secs: float
    bound_secs: float
    other_simulated: int
    simulated: int


def against_table(runs: Sequence[Reached]) -> str:
    """Formats what came out, in Markdown.

    Args:
        runs: of every problem, with the same seeds and as many seconds.
    """
    rows = []
    for problem in [*dict.fromkeys(run.problem for run in runs), None]:
        some = [run for run in runs if problem in (run.problem, None)]
        rows.append(
            [
                problem or "all",
                format_step(_mean(run.other_secs for run in some)) if problem else "",
                format_step(_mean(run.step_secs for run in some)) if problem else "",
                f"{_mean(run.step_secs / run.other_secs for run in some):.4f}",
                f"{_mean(run.other_secs / run.other_bound_secs for run in some):.3f}",
                f"{_mean(run.other_secs / run.bound_secs for run in some):.3f}",
                f"{_mean(run.step_secs / run.bound_secs for run in some):.3f}",
                f"{_mean(run.simulated / run.other_simulated for run in some):.2f}",
            ]
        )
    headers = ["problem", "other", "this", "this / other", "other / its bound"]
    headers += ["other / bound", "this / bound", "placements, this / other"]
    return markdown_table(headers, rows, "lrrrrrrr")


def _mean(values: Iterable[float]) -> float:
    with np.errstate(divide="ignore"):  # What one of two trees never fits makes a ratio 0.
        return float(np.exp(np.log(list(values)).mean()))


def main() -> None:
    """Makes the searches that are missing and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", required=True, metavar="DIR", help="the other source tree")
    parser.add_argument("--problems", default=",".join(PROBLEMS), help="by comma (default: all)")
    parser.add_argument("--max_secs", default="10", help="of a search, by comma (default 10)")
    parser.add_argument("--seeds", type=int, default=2, help="how many (default 2)")
    parser.add_argument("--runs_dir", default="runs/tables", help="where problems are kept")
    parser.add_argument("--out_dir", default="runs/auto_against")
    args = parser.parse_args()
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    names = [text.partition(":") for text in args.problems.split(",")]
    keys = [ProblemKey(model, machine, "fine") for model, _, machine in names]
    folder = pathlib.Path(args.runs_dir, "problems").resolve()
    if failures := make_problems(keys, folder):
        parser.error("; ".join(failures.values()))
    kept = {
        (run.problem, run.max_secs, run.seed): run for run in read_runs(Reached, out / "runs.csv")
    }
    budgets = [float(text) for text in args.max_secs.split(",")]
    wanted = list(itertools.product(args.problems.split(","), budgets, range(args.seeds)))
    wanted.sort(key=lambda key: key[1:])
    for number, key in enumerate(wanted, 1):
        if key in kept:
            continue
        kept[key] = run = _reached(*key, args.against, folder, turned=number % 2 == 0)
        write_runs(Reached, out / "runs.csv", list(kept.values()))
        print(f"{number}/{len(wanted)}: {run}", file=sys.stderr, flush=True)
    commits = [
        subprocess.run(
            ["git", "-C", tree, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        ).stdout.strip()
        for tree in (args.against, ".")
    ]
    parts = [f"# `auto` at commit {commits[1]} beside {commits[0]}"]
    for max_secs in budgets:
        runs = [kept[key] for key in wanted if key[1] == max_secs]
        parts += [f"## {max_secs:g} s on one core", against_table(runs)]
    made_by = provenance()
    parts.append(
        f"Fastest simulated steps; geometric means over {args.seeds} seeds. Other / its bound: by "
        "the lower bound that the other tree knows; the last two by the one that this tree knows. "
        f"Made by `{made_by['command']}` on {made_by['processor']}, {made_by['cores']} cores."
    )
    text = "\n\n".join(parts)
    print(text)
    (out / "table.md").write_text(text + "\n")


def _reached(
    problem: str, max_secs: float, seed: int, against: str, folder: pathlib.Path, *, turned: bool
) -> Reached:
    """Searches a problem in both trees at a time, on a core each: `turned` says who has which."""
    model, _, machine = problem.partition(":")
    arguments = [model, machine, str(folder), str(max_secs), str(seed)]
    cores = sorted(os.sched_getaffinity(0))[:2]
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        (other_secs, other_bound_secs, other_simulated), (step_secs, bound_secs, simulated) = (
            executor.map(_search, [against, "."], cores[:: -1 if turned else 1], [arguments] * 2)
        )
    return Reached(
        problem=problem,
        max_secs=max_secs,
        seed=seed,
        other_secs=other_secs,
        step_secs=step_secs,
        other_bound_secs=other_bound_secs,
        bound_secs=bound_secs,
        other_simulated=other_simulated,
        simulated=simulated,
    )


def _search(tree: str, core: int, arguments: list[str]) -> tuple[float, float, int]:
    """Searches in a source tree on one core."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _SEARCH, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": ".", "TF_CPP_MIN_LOG_LEVEL": "2"},
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{tree}: {done.stderr}")
    step_secs, bound_secs, simulated = json.loads(done.stdout.splitlines()[-1])
    return math.inf if step_secs is None else step_secs, bound_secs, simulated


if __name__ == "__main__":
    main()
