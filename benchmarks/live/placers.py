"""Placers against each other, live, at equal trials.

Every placer starts from nothing, without the baselines that `optimize` measures first: what does it
find within a budget of live trials? The graph is the language model of the README. A search takes
the best of many noisy times, so what the searches have found is measured again at the end, side by
side with the graph as it came. Writes a CSV of every trial, that last comparison, tables and a
picture of the best step time so far. Searches go on where they were stopped; their last comparison
is made anew.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import platform
import tempfile
from collections.abc import Mapping, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from benchmarks.live.model import LiveModel
from benchmarks.live.placers_report import Search, placer_table, plot, search_table, write_trials
from benchmarks.models import language_model
from tf_placer.files import write_json
from tf_placer.live.confirmation import Confirmation, survey
from tf_placer.live.round_statistics import LEAST_ROUNDS
from tf_placer.machines.lookup import find_machine
from tf_placer.placers import granularity_of, make_placer
from tf_placer.report.progress import progress_line
from tf_placer.search.loop import Budget, search
from tf_placer.search.measuring import InTurn
from tf_placer.search.trial_log import ORIGINAL, TrialLog
from tf_placer.text.units import format_step

__all__ = ["main"]

# Nothing about them is random: one seed says it all.
_DETERMINISTIC = ("single_device", "expert")


def _search(live: LiveModel, placer_name: str, seed: int, args: argparse.Namespace) -> Search:
    """Searches once, in processes of its own. What is in its log already is not measured again."""
    grouped = live.grouped(placer_name)
    placer = make_placer(placer_name, grouped.group_graph, live.legal(placer_name), seed=seed)
    header = live.header(placer_name, seed)
    path = pathlib.Path(args.log_dir) / f"{placer_name}_{seed}" / "trials.jsonl"
    with TrialLog(path, header) as log, live.environment(placer_name) as environment:
        trials = search(
            lambda: environment.measure_assignment({}),
            InTurn(environment),
            [placer],
            log,
            Budget(args.trials + 1, 1e9),
            report=lambda trial, progress: print(progress_line(trial, progress), flush=True),
        )
    # The log may be of a larger budget.
    trials = trials[: args.trials + 1]
    return Search(placer_name, seed, grouped.group_graph.num_groups, placer.batch_size, trials)


def _run(args: argparse.Namespace) -> tuple[list[Search], Confirmation]:
    with tempfile.TemporaryDirectory() as directory:
        live = LiveModel(language_model.build(), find_machine(args.machine), directory)
        # Placers take turns, so that a slow quarter of an hour does not fall on one of them.
        wanted = [
            (placer, seed)
            for seed in range(args.seeds)
            for placer in args.placers
            if seed == 0 or placer not in _DETERMINISTIC
        ]
        searches = []
        for number, (placer, seed) in enumerate(wanted, 1):
            print(f"search {number}/{len(wanted)}: {placer} (seed {seed})", flush=True)
            searches.append(_search(live, placer, seed, args))
        candidates: dict[str, Mapping[str, str]] = {ORIGINAL: {}}
        for run in searches:
            if run.found is not None and run.found.assignment is not None:
                candidates[run.label] = live.assignment(run.placer, run.found.assignment)
        if len(candidates) == 1:
            raise SystemExit("no search has found a placement that runs")
        with live.environment(args.placers[0]) as environment:
            confirmation = survey(
                environment,
                candidates,
                ORIGINAL,
                rounds=args.rounds,
                report=functools.partial(print, "again:", flush=True),
            )
    return searches, confirmation


def _write(args: argparse.Namespace, searches: Sequence[Search], confirmation: Confirmation) -> str:
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    write_trials(out / "trials.csv", searches)
    write_json(out / "again.json", confirmation.to_json())
    original_secs = confirmation.step_secs(ORIGINAL)
    text = f"""\
command: python -m benchmarks.live.placers --placers {",".join(args.placers)} \
--trials {args.trials} --seeds {args.seeds} --machine {args.machine} --rounds {args.rounds}
versions: Python {platform.python_version()}, TensorFlow {tf.__version__}
machine: {os.cpu_count()} cores, {platform.machine()}

first, last quarter: mean step of the trials that ran. found: the fastest trial. speed-up: of what
was found over the graph as it came, measured side by side in {len(confirmation.rounds)} rounds.
again: the step of the graph as it came, then \
{"-" if original_secs is None else format_step(original_secs)}, divided by the speed-up.
In trials.csv, trial 0 is the graph as it came.

{placer_table(searches, confirmation)}

{search_table(searches, confirmation)}
"""
    (out / "table.txt").write_text(text)
    plot(out / "best_so_far.png", searches)
    return text


def main() -> None:
    """Runs the searches and writes what came of them."""

    def placers(text: str) -> list[str]:
        names = list(dict.fromkeys(text.split(",")))
        for name in names:
            try:
                granularity_of(name)
            except ValueError as error:
                raise argparse.ArgumentTypeError(str(error)) from error
        return names

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--placers",
        type=placers,
        default="expert,random,colocrl,post,eagle",
        help="separated by commas (default expert,random,colocrl,post,eagle)",
    )
    parser.add_argument("--trials", type=int, default=60, help="per search (default 60)")
    parser.add_argument("--seeds", type=int, default=3, help="searches per placer (default 3)")
    parser.add_argument("--rounds", type=int, default=5, help="of measuring again (default 5)")
    parser.add_argument("--machine", default="local:2")
    parser.add_argument("--log_dir", default="runs/live_placers")
    parser.add_argument("--out_dir", default="benchmarks/results/live_placers")
    args = parser.parse_args()
    if args.trials < 1 or args.seeds < 1 or args.rounds < LEAST_ROUNDS:
        # Fewer rounds have no interval.
        parser.error(f"--trials and --seeds must be at least 1, --rounds at least {LEAST_ROUNDS}")
    print(_write(args, *_run(args)))


if __name__ == "__main__":
    main()
