"""Draws the figures of the papers that show data, with ours: one command, one file each.

Placements and steps are simulated, of searches by `auto` that this command makes. Learning curves
are those of runs that are kept in benchmarks/results, and so are the curves of training to the end
(ColocRL 6 and 7): of small models on two worker processes, by `benchmarks.live.training`.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.harness.pictures import save_picture
from benchmarks.harness.placement_runs import Run
from benchmarks.harness.provenance import package_versions
from benchmarks.live import training_curves
from benchmarks.live.training_picture import draw_training
from benchmarks.live.training_report import smooth_runs
from benchmarks.paper_figures.distribution import (
    draw_distribution,
    learn_distributions,
    two_operations,
)
from benchmarks.paper_figures.kept_curves import draw_curves, read_curves
from benchmarks.problems.experts import expert_placements
from benchmarks.problems.paper import ProblemKey, make_problems, read_paper_problem
from tf_placer.files import write_bytes, write_json
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.placers.presets import name_paper_preset
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.colors import DEVICE_COLORS
from tf_placer.report.operation_kinds import OperationKinds, operation_kinds
from tf_placer.report.page.run_view import StepView, view_step
from tf_placer.report.pictures.placement_picture import placement_bytes
from tf_placer.report.pictures.time_picture import draw_copies, draw_device_bars, draw_gantt
from tf_placer.text.units import format_step

__all__ = ["main"]

_RESULTS = pathlib.Path("benchmarks/results")
_KEPT = ("comparison/*_runs.jsonl.xz", "systems_on_k80/*_runs.jsonl.xz")
_NMT_2, _NMT_4 = ("nmt_2", "4xK80"), ("nmt_4", "post-4xK80")
_INCEPTION = ("inception_v3", "4xK80")
_POST = ("post:published", "post_ce", "post_ppo:published", "policy_gradient:variant")
_EAGLE = tuple(map(name_paper_preset, ("hierarchical", "post", "eagle", "eagle_gcn")))
_TRAINING = _RESULTS / "training" / "curves.csv.gz"
# By file, the model that is trained, what is beside each other, and whether perplexity is shown.
_TRAINED: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "colocrl_6": ("translation", ("original", "expert", "found"), True),
    "colocrl_7": ("inception_v3", ("original", "found", "synchronous", "asynchronous"), False),
}
# By file, the models, machines and placers of its learning curves.
_CURVES = {
    "post_2": (
        [("resnet_50", "post-4xK80"), ("inception_v3", "4xK80"), ("resnet_101", "post-8xK80")],
        _POST,
    ),
    "eagle_2": (
        [("bert_base", "eagle-4xP100")],
        tuple(map(name_paper_preset, ("hierarchical", "eagle_metis", "eagle_fluid", "eagle"))),
    ),
    "eagle_5": ([("inception_v3_batch_1", "eagle-4xP100")], _EAGLE),
    "eagle_6": ([("gnmt_4", "eagle-4xP100")], _EAGLE),
    "eagle_7": ([("bert_base", "eagle-4xP100")], _EAGLE),
}


@dataclasses.dataclass(frozen=True, eq=False)
class _Model:
    """A model that was placed.

    Attributes:
        title: what was placed where.
        problem: its problem.
        kinds: of its operations.
        steps: of the expert, and of what `auto` found.
    """

    title: str
    problem: PlacementProblem
    kinds: OperationKinds
    steps: Mapping[str, StepView]


def main() -> None:
    """Draws all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--search_secs", type=float, default=60.0, help="per model (default 60)")
    parser.add_argument("--problems_dir", default="runs/problems", help="default runs/problems")
    parser.add_argument("--out_dir", default="benchmarks/results/paper_figures")
    args = parser.parse_args()
    out_dir = pathlib.Path(args.out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    _draw_distribution(out_dir / "post_1.png")
    curves = read_curves(sorted(path for each in _KEPT for path in _RESULTS.glob(each)))
    for name, (problems, placers) in _CURVES.items():
        _draw_learning(out_dir / f"{name}.png", curves, problems, placers)
    for name, (trained, variants, perplexity) in _TRAINED.items():
        _draw_training(out_dir / f"{name}.png", trained, variants, perplexity=perplexity)
    keys = [ProblemKey(*which, "fine") for which in (_NMT_2, _NMT_4, _INCEPTION)]
    failures = make_problems(keys, args.problems_dir)
    if failures:
        raise SystemExit("\n".join(failures.values()))
    models = {
        (key.model, key.machine): _place(key, args.problems_dir, args.search_secs) for key in keys
    }
    nmt, nmt_4, inception = models[_NMT_2], models[_NMT_4], models[_INCEPTION]
    for name, model in (("colocrl_4", nmt), ("colocrl_5", inception)):
        path = out_dir / f"{name}.png"
        devices = [(label, view.trace.operation_devices) for label, view in model.steps.items()]
        write_bytes(path, placement_bytes(model.problem, model.kinds, devices))
        print(path)
    _draw_bars(out_dir / "colocrl_8.png", nmt)
    _draw_bars(out_dir / "colocrl_9.png", inception)
    _draw_steps(out_dir / "post_3.png", [inception, nmt_4])
    write_json(
        out_dir / "provenance.json",
        {
            "module": "benchmarks.paper_figures.figures",
            "search_secs": args.search_secs,
            "versions": package_versions(),
            "steps": {
                model.title: {label: view.trace.step_secs for label, view in model.steps.items()}
                for model in models.values()
            },
        },
    )


def _place(key: ProblemKey, problems_dir: str, search_secs: float) -> _Model:
    """Places a model as people do, and by `auto`."""
    given = read_paper_problem(key, problems_dir)
    problem = given.problem
    experts = expert_placements(
        key.model, problem.operation_names, problem.groups, given.legal, problem.num_devices - 1
    )
    found = coarse_to_fine_search(problem, given.groups, max_secs=search_secs)
    placements = {f"expert ({rule})": each for rule, each in list(experts.items())[:1]}
    placements["auto"] = found.best.placement
    steps = {}
    for label, placement in placements.items():
        view = view_step(label, problem, np.asarray(placement, np.int32))
        if view is not None:
            steps[f"{label}, {format_step(view.trace.step_secs)}"] = view
    title = f"{key.model} on {key.machine}"
    print(title, *steps, sep="; ")
    return _Model(title, problem, operation_kinds(problem), steps)


def _draw_distribution(path: pathlib.Path) -> None:
    stages = learn_distributions(two_operations())

    def draw(figure: Any) -> None:
        panels = [
            figure.add_subplot(1, len(stages), i + 1, projection="3d") for i in range(len(stages))
        ]
        draw_distribution(panels, stages)

    _write(path, (11, 4), draw, layout=None)


def _draw_learning(
    path: pathlib.Path,
    runs: list[Run],
    problems: list[tuple[str, str]],
    placers: tuple[str, ...],
) -> None:
    def draw(figure: Any) -> None:
        panels = figure.subplots(len(problems), 2, squeeze=False, sharey="row")
        for row, (model, machine) in zip(panels, problems, strict=True):
            of_problem = {
                run.key.label: run
                for run in runs
                if (run.key.model, run.key.machine) == (model, machine)
            }
            shown = [name for name in placers if name in of_problem]
            colors = [DEVICE_COLORS[placers.index(name)] for name in shown]
            draw_curves(row, [of_problem[name] for name in shown], colors)
            row[0].set_title(f"{model} on {machine}, simulated", fontsize=9, loc="left")

    _write(path, (11, 3.2 * len(problems) + 0.4), draw)


def _draw_training(
    path: pathlib.Path, model: str, variants: tuple[str, ...], *, perplexity: bool
) -> None:
    curves = training_curves.read_curves(_TRAINING)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        runs = {variant: smooth_runs(curves, model, variant) for variant in variants}
        draw_training(axes, runs, perplexity=perplexity)
        axes.set_title(f"{model}, small, on local:2: mean of the runs and their spread", fontsize=9)

    _write(path, (8, 4.5), draw)


def _draw_bars(path: pathlib.Path, model: _Model) -> None:
    def draw(figure: Any) -> None:
        panels = figure.subplots(1, 2)
        end_secs = max(view.trace.step_secs for view in model.steps.values())
        draw_device_bars(panels[0], model.steps, model.kinds, end_secs)
        draw_copies(panels[1], model.steps)
        figure.suptitle(f"{model.title}, simulated", fontsize=10)

    _write(path, (11, 4), draw)


def _draw_steps(path: pathlib.Path, models: list[_Model]) -> None:
    rows = [(model, label) for model in models for label in model.steps]

    def draw(figure: Any) -> None:
        for axes, (model, label) in zip(figure.subplots(len(rows), 1), rows, strict=True):
            trace = model.steps[label].trace
            by_layer = len(model.kinds.layer_names) <= len(DEVICE_COLORS) + 4
            end_secs = max(view.trace.step_secs for view in model.steps.values())
            draw_gantt(axes, trace, model.kinds, "layer" if by_layer else "kind", end_secs)
            axes.set_title(f"{model.title}: {label}, simulated", fontsize=9, loc="left")

    _write(path, (12, 2.3 * len(rows)), draw)


def _write(
    path: pathlib.Path,
    size: tuple[float, float],
    draw: Callable[[Any], None],
    layout: Any = "constrained",
) -> None:
    """Writes a figure as PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout=layout)
    draw(figure)
    save_picture(figure, path, dpi=100)
    print(path)


if __name__ == "__main__":
    main()
