"""What `auto` reaches in equal time in this source tree and in another, such as an older commit.

Every problem is searched in simulation, with the same seeds, on one core each: in both trees at a
time, so that a disturbance of the machine falls on both, and they change cores with every search.
What is done is kept in `--out_dir`, so the benchmark goes on where it stopped.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

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
    None if result.best.excess_bytes else result.best.step_secs, result.num_simulated
]))
"""


@dataclasses.dataclass(frozen=True)
class Reached:
    """What both trees came to.

    Attributes:
        problem: its name.
        seed: of everything random.
        other_secs: the fastest step of the other tree; infinite if nothing fits.
        step_secs: of this one.
        other_simulated: placements that the other tree simulated.
        simulated: that this one did.
    """

    problem: str
    seed: int
    other_secs: float
    step_secs: float
    other_simulated: int
    simulated: int


def against_table(runs: list[Reached]) -> str:
    """Formats what came out, in Markdown.

    Args:
        runs: of every problem, with the same seeds.
    """

    def mean(values: list[float]) -> float:
        return float(np.exp(np.log(values).mean()))

    rows = []
    for problem in [*dict.fromkeys(run.problem for run in runs), None]:
        some = [run for run in runs if problem in (run.problem, None)]
        rows.append(
            [
                problem or "all",
                format_step(mean([run.other_secs for run in some])) if problem else "",
                format_step(mean([run.step_secs for run in some])) if problem else "",
                f"{mean([run.step_secs / run.other_secs for run in some]):.4f}",
                f"{mean([run.simulated / run.other_simulated for run in some]):.2f}",
            ]
        )
    headers = ["problem", "other", "this", "this / other", "placements, this / other"]
    return markdown_table(headers, rows, "lrrrr")


def main() -> None:
    """Makes the searches that are missing and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", required=True, metavar="DIR", help="the other source tree")
    parser.add_argument("--problems", default=",".join(PROBLEMS), help="by comma (default: all)")
    parser.add_argument("--max_secs", type=float, default=12.0, help="of a search (default 12)")
    parser.add_argument("--seeds", type=int, default=2, help="how many (default 2)")
    parser.add_argument("--runs_dir", default="runs/tables", help="where problems are kept")
    parser.add_argument("--out_dir", default="benchmarks/results/auto_against")
    args = parser.parse_args()
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    names = [text.partition(":") for text in args.problems.split(",")]
    keys = [ProblemKey(model, machine, "fine") for model, _, machine in names]
    folder = pathlib.Path(args.runs_dir, "problems").resolve()
    if failures := make_problems(keys, folder):
        parser.error("; ".join(failures.values()))
    kept = {(run.problem, run.seed): run for run in read_runs(Reached, out / "runs.csv")}
    wanted = [(text, seed) for seed in range(args.seeds) for text in args.problems.split(",")]
    for number, (problem, seed) in enumerate(wanted):
        if (problem, seed) in kept:
            continue
        arguments = [*problem.split(":"), str(folder), str(args.max_secs), str(seed)]
        cores = sorted(os.sched_getaffinity(0))[:2]
        with concurrent.futures.ThreadPoolExecutor(2) as executor:
            (other_secs, other_simulated), (step_secs, simulated) = executor.map(
                _search, [args.against, "."], cores[:: 1 if number % 2 else -1], [arguments] * 2
            )
        run = Reached(problem, seed, other_secs, step_secs, other_simulated, simulated)
        kept[problem, seed] = run
        write_runs(Reached, out / "runs.csv", list(kept.values()))
        print(f"{number + 1}/{len(wanted)}: {run}", file=sys.stderr, flush=True)
    commits = [
        subprocess.run(
            ["git", "-C", tree, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        ).stdout.strip()
        for tree in (args.against, ".")
    ]
    made_by = provenance()
    text = (
        f"# `auto` at commit {commits[1]} beside {commits[0]}\n\n"
        f"{against_table([kept[key] for key in wanted])}\n\nFastest simulated steps after "
        f"{args.max_secs:g} s on one core; geometric means over {args.seeds} seeds. Made by "
        f"`{made_by['command']}` on {made_by['processor']}, {made_by['cores']} cores."
    )
    print(text)
    (out / "table.md").write_text(text + "\n")


def _search(tree: str, core: int, arguments: list[str]) -> tuple[float, int]:
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
    step_secs, simulated = json.loads(done.stdout.splitlines()[-1])
    return float("inf") if step_secs is None else step_secs, simulated


if __name__ == "__main__":
    main()
