"""An ablation of learned placers: variants of each paper, with one setting changed at a time.

A paper leaves settings open, and some that it gives do not work here. Each system is run with the
settings that were chosen, with each of them changed back alone, and with those of its paper preset
("eagle:published"), on several problems with several seeds. Networks are small, so that this takes
an hour or two, not days; --full_size compares the settings that depend on the size, with
networks as large as the papers', and --repairs how failures count and learned groups start. Writes
readings.md (full_size.md, repairs.md), and readings_runs.jsonl.xz (and so on) with every run that
ended: those that are there are not repeated.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.harness.arguments import add_pool_arguments, run_parser
from benchmarks.harness.kept_runs import read_or_make_runs
from benchmarks.harness.placement_runs import Run, RunKey
from benchmarks.harness.run_counts import format_commits, format_failures
from benchmarks.harness.table_file import write_table
from benchmarks.harness.timed_search import SearchBudget
from tf_placer.placers.presets import name_paper_preset
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_duration

__all__ = [
    "CHOSEN",
    "FULL_SIZE_READINGS",
    "PAPER",
    "READINGS",
    "REPAIRS",
    "Reading",
    "keep_whole_seeds",
    "main",
    "readings_markdown",
]

CHOSEN, PAPER, _FORMER = "as chosen", "paper preset", "before"
_SAMPLES, _MAX_SECS, _SEEDS = 600, 3600.0, (0, 1, 2)
_TITLE = "Readings of the papers"
_FULL_SIZE_TITLE = f"{_TITLE}: what hangs on the size of the networks"
_REPAIRS_TITLE = "Failures and the start of learned groups"
PROBLEMS = ("rnnlm_2:4xK80", "nmt_2:4xK80", "inception_v3:4xK80", "rnnlm_large:4xK80")
"""Three models that one GPU holds, and one that no GPU does."""

REPAIR_PROBLEMS = (
    *("bert_base:eagle-4xP100", "gnmt_4:eagle-4xP100", "decoder_only:4xV100"),
    "resnet_50:post-4xK80",
)
"""Two models that no GPU holds, and two that one does."""

# A step of Adam changes wide layers more, so small networks take a higher learning rate.
_SMALL_LAYERS = {"hidden_units": "64", "attention_units": "64"}
_SMALL_NETWORK = _SMALL_LAYERS | {"learning_rate": "0.001"}
_FEW_GROUPS = {"num_groups": "64"}


@dataclasses.dataclass(frozen=True)
class Reading:
    """A system with the settings that it has, and others.

    Attributes:
        system: name of the placer.
        chosen: the settings that it has, by name, of those that are changed.
        changes: by what they are, the settings that differ from the chosen ones.
        small: settings that make its networks small.
    """

    system: str
    chosen: Mapping[str, str]
    changes: Mapping[str, Mapping[str, str]]
    small: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def variants(self) -> dict[str, dict[str, str]]:
        """Lists the settings of every variant, the chosen ones first."""
        changed = {name: {**self.chosen, **change} for name, change in self.changes.items()}
        return {CHOSEN: dict(self.chosen), **changed}


_TOLD_AND_MOVED = {"feed_item": "true", "baseline_moves": "sample"}
_NOT_TOLD = {"feed_item": "false"}
_PER_BATCH = {"baseline_moves": "batch"}
_METIS, _ANY_GROUPS = {"grouper_start": "metis"}, {"grouper_start": "none"}
_SLOWER, _FASTER = {"learning_rate": "0.0001"}, {"learning_rate": "0.001"}
_EAGLES_RATE = {"learning_rate": "0.01"}
_EMA = {"baseline": "ema", "baseline_decay": "0.5", "baseline_start": "first_batch"}
_FAILING, _FIRST_BATCH = {"baseline_start": "failing"}, {"baseline_start": "first_batch"}

READINGS: Sequence[Reading] = (
    Reading(
        "eagle",
        _TOLD_AND_MOVED | _METIS | {"gain": "sum"},
        {
            "groups start anyhow": _ANY_GROUPS,
            "gain is a mean": {"gain": "mean"},
            "learning rate 0.01": _EAGLES_RATE,
            PAPER: _NOT_TOLD | _PER_BATCH | _EAGLES_RATE | _ANY_GROUPS | {"gain": "mean"},
        },
        _SMALL_NETWORK | _FEW_GROUPS,
    ),
    Reading(
        "hierarchical",
        _TOLD_AND_MOVED | _METIS | _FIRST_BATCH,
        {
            "groups start anyhow": _ANY_GROUPS,
            "decoder not told the group": _NOT_TOLD,
            "average moves per batch": _PER_BATCH,
            "average starts at a failure": _FAILING,
            "learning rate 0.01": _EAGLES_RATE,
            PAPER: _NOT_TOLD | _PER_BATCH | _FAILING | _EAGLES_RATE | _ANY_GROUPS,
        },
        _SMALL_NETWORK | _FEW_GROUPS,
    ),
    Reading(
        "colocrl",
        _TOLD_AND_MOVED | _FIRST_BATCH,
        {
            "learning rate 0.0001": _SLOWER,
            "average starts at a failure": _FAILING,
            PAPER: _NOT_TOLD | _PER_BATCH | _FAILING | _SLOWER,
        },
        _SMALL_NETWORK,
    ),
    Reading(
        "spotlight",
        _TOLD_AND_MOVED | _FAILING,
        {"average starts at what ran": _FIRST_BATCH, PAPER: _NOT_TOLD | _PER_BATCH},
        _SMALL_LAYERS,
    ),
    Reading(
        "post",
        _EMA,
        {"decay 0.9": {"baseline_decay": "0.9"}, PAPER: {"baseline": "mean"}},
    ),
)
"""The readings of the papers; every setting that differs between variants is written out, so that
what was kept stays true when a default changes."""

_AT_SMALL_RATE = {"learning rate 0.001": _FASTER}
_MANY_GROUPS = {"num_groups": "256"}
_BOUNDED = {"tanh_limit": "1.0"}

FULL_SIZE_READINGS: Sequence[Reading] = (
    Reading("eagle", _SLOWER | _FEW_GROUPS, _AT_SMALL_RATE),
    Reading(
        "eagle_gcn",
        _SLOWER | _FEW_GROUPS,
        _AT_SMALL_RATE | {"learning rate 0.001, 256 groups": _FASTER | _MANY_GROUPS},
    ),
    Reading(
        "hierarchical",
        _SLOWER | _FEW_GROUPS | _FIRST_BATCH | {"tanh_limit": "none"},
        {
            "bounded logits": _BOUNDED,
            "bounded logits, learning rate 0.001": _BOUNDED | _FASTER,
            "bounded logits, 256 groups": _BOUNDED | _MANY_GROUPS,
            "bounded logits, average starts at a failure": _BOUNDED | _FAILING,
        },
    ),
    Reading(
        "colocrl",
        _SLOWER | _FIRST_BATCH,
        _AT_SMALL_RATE | {"average starts at a failure": _FAILING},
    ),
)
"""What hangs on the size of the networks."""

_RELATIVE = {"failure_factor": "2", "baseline_failures": "false"}
_STILL_GROUPS = {"grouper_uniform": "0.001", "grouper_start_rate": "0"}
_FORMER_FAILURES = {"failure_factor": "none", "baseline_failures": "true"}
_NOISY_GROUPS = {"grouper_uniform": "0.01"}
_FAILURE_CHANGES = {
    "a failure is a constant": {"failure_factor": "none"},
    "failures count up to 4 times": {"failure_factor": "4"},
    "failures move the average": {"baseline_failures": "true"},
    _FORMER: _FORMER_FAILURES,
}
_GROUPER_CHANGES = _FAILURE_CHANGES | {
    "1 % of the units start anywhere": _NOISY_GROUPS,
    "the start of the groups is trained": {"grouper_start_rate": "10"},
    _FORMER: _FORMER_FAILURES | _NOISY_GROUPS,
}
_CLIPPED, _UNLIMITED = {"advantage_clip": "1"}, {"advantage_clip": "none"}
_DEARER = {"failure_factor": "3"}
_COLOCRL_CHANGES = _FAILURE_CHANGES | {"failures count up to 2 times": {"failure_factor": "2"}}
_POST_CHANGES = _FAILURE_CHANGES | {
    "gain without a limit": _UNLIMITED,
    _FORMER: _FORMER_FAILURES | _UNLIMITED,
}

REPAIRS: Sequence[Reading] = (
    Reading("eagle", _RELATIVE | _STILL_GROUPS, _GROUPER_CHANGES, _SMALL_NETWORK | _FEW_GROUPS),
    Reading(
        "hierarchical", _RELATIVE | _STILL_GROUPS, _GROUPER_CHANGES, _SMALL_NETWORK | _FEW_GROUPS
    ),
    Reading("colocrl", _RELATIVE | _DEARER, _COLOCRL_CHANGES, _SMALL_NETWORK),
    Reading("spotlight", _RELATIVE | _DEARER, _COLOCRL_CHANGES, _SMALL_LAYERS),
    Reading("post", _RELATIVE | _CLIPPED, _POST_CHANGES),
    Reading("post_ppo", _RELATIVE | _CLIPPED, _POST_CHANGES),
)
"""Failures and the start of learned groups, on problems on which nothing else was chosen."""

_Cells = Mapping[tuple[str, str, str], Sequence[Run]]


def readings_markdown(title: str, cells: _Cells, problems: Sequence[str], runs_text: str) -> str:
    """Makes the page.

    Args:
        title: of the page.
        cells: the runs that ended, one per seed, by system, variant and problem.
        problems: in the order of the columns.
        runs_text: says how many runs there are.
    """
    headers = ["system", "settings", *problems, "by the chosen", "seeds", "failed"]
    rows = []
    for system, variant in dict.fromkeys((system, variant) for system, variant, _ in cells):
        own_runs = [cells.get((system, variant, problem), ()) for problem in problems]
        medians = [_median(runs) for runs in own_runs]
        chosen = [_median(cells.get((system, CHOSEN, problem), ())) for problem in problems]
        both = [
            own / other
            for own, other in zip(medians, chosen, strict=True)
            if own is not None and other is not None
        ]
        ratio = f"{statistics.geometric_mean(both):.3f}" if both else "-"
        if both and len(both) < len(problems):
            ratio += f" ({len(both)} of {len(problems)})"
        steps = [
            f"{median:.3f}" if median is not None else "none" if runs else ""
            for median, runs in zip(medians, own_runs, strict=True)
        ]
        seeds = dict.fromkeys(str(len(runs)) for runs in own_runs if runs)
        failed = [format_failures(runs) for runs in own_runs if runs]
        name = name_paper_preset(system) if variant == PAPER else variant
        rows.append([system, name, *steps, ratio, " or ".join(seeds), ", ".join(failed)])
    return "\n".join(
        [
            f"# {title}",
            "",
            "The fastest step in seconds, median over the seeds. The last column is the geometric "
            "mean of what a step takes by what it takes with the settings that were chosen. none: "
            "in most runs nothing fitted. What is empty is not made yet. failed: of all samples on "
            "each problem, the share that did not fit. The settings were chosen by these tables.",
            "",
            markdown_table(headers, rows, "ll" + "r" * (len(problems) + 3)),
            "",
            runs_text,
        ]
    )


def _median(runs: Sequence[Run]) -> float | None:
    steps = [run.found.best_secs for run in runs if run.found is not None]
    if not steps:
        return None
    middle = statistics.median(math.inf if secs is None else secs for secs in steps)
    return middle if math.isfinite(middle) else None


def main() -> None:
    """Makes the runs that are missing and writes the page."""
    parser = run_parser(__doc__, "readings")
    add_pool_arguments(parser)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--full_size",
        action="store_true",
        help="networks of the size that the papers have; what hangs on that",
    )
    kind.add_argument(
        "--repairs",
        action="store_true",
        help="failures and the start of learned groups, on problems of their own",
    )
    args = parser.parse_args()
    name, title, readings, problems = "readings", _TITLE, READINGS, PROBLEMS
    if args.full_size:
        name, title, readings = "full_size", _FULL_SIZE_TITLE, FULL_SIZE_READINGS
    if args.repairs:
        name, title, readings, problems = "repairs", _REPAIRS_TITLE, REPAIRS, REPAIR_PROBLEMS
    keys = _keys(readings, problems)
    out = pathlib.Path(args.out_dir)
    # Seed by seed, so that all cells fill up together.
    wanted = sorted(itertools.chain.from_iterable(keys.values()), key=lambda key: key.seed)
    runs = read_or_make_runs(
        wanted,
        SearchBudget(_MAX_SECS, _SAMPLES),
        out / f"{name}_runs.jsonl.xz",
        args.runs_dir,
        jobs=args.jobs,
        only_kept=args.only_kept,
    )
    runs = keep_whole_seeds(wanted, runs)
    cells = {
        cell: [run for key in own if (run := runs.get(key)) and run.found]
        for cell, own in keys.items()
    }
    took_secs = [run.found.search_secs for run in runs.values() if run.found]
    runs_text = (
        f"{len(took_secs)} of {len(wanted)} runs, {_SAMPLES} samples each, "
        f"{format_duration(sum(took_secs))} of processor time. {format_commits(runs.values())}"
    )
    write_table(readings_markdown(title, cells, problems, runs_text), out / f"{name}.md")


def keep_whole_seeds(wanted: Iterable[RunKey], runs: Mapping[RunKey, Run]) -> dict[RunKey, Run]:
    """Keeps those runs of each system whose seed has no run missing.

    So all rows of a system have the same seeds.

    Args:
        wanted: all runs of the page.
        runs: those that there are. All runs of a system without a whole seed are kept.
    """
    wanted = list(wanted)
    missing = {(key.placer, key.seed) for key in wanted if key not in runs}
    whole = {(key.placer, key.seed) for key in wanted} - missing
    systems = {placer for placer, _ in whole}
    return {
        key: run
        for key, run in runs.items()
        if (key.placer, key.seed) in whole or key.placer not in systems
    }


def _keys(
    readings: Sequence[Reading], problems: Sequence[str]
) -> dict[tuple[str, str, str], list[RunKey]]:
    """Lists the runs of every cell, one per seed."""
    keys = {}
    for reading in readings:
        for variant, settings in reading.variants().items():
            options = tuple(sorted({**reading.small, **settings}.items()))
            for problem in problems:
                model, _, machine = problem.partition(":")
                keys[reading.system, variant, problem] = [
                    RunKey(model, machine, reading.system, options, seed) for seed in _SEEDS
                ]
    return keys


if __name__ == "__main__":
    main()
