"""Pictures of where people place recurrent models: the unrolled grid, coloured by device.

A cell of a picture is a layer at a step. Its colour is the device of its operations, by the rules
of `benchmarks.problems.experts`, on a machine of the catalogue.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import re
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.harness.pictures import save_picture
from benchmarks.models.catalogue import MODELS, build_model
from benchmarks.problems.experts import expert_placements
from graph_passes.pipeline import group_operations
from tf_placer.inputs.sources import read_source
from tf_placer.machines.catalogue import described_machine
from tf_placer.machines.machine import Machine, MachineError

__all__ = ["device_grid", "main"]

_MODELS = ("rnnlm_2", "rnnlm_4", "nmt_2", "nmt_4", "nmt_8", "gnmt_4")


def device_grid(scopes: Sequence[str], devices: Mapping[str, int]) -> np.ndarray:
    """Finds the device of each layer at each step.

    Args:
        scopes: of the layers.
        devices: the device of each operation, by name. Those of a step are in a scope `step_0`,
            `step_1` and so on of the layer's.

    Returns:
        int32 [num_scopes, num_steps], the device of most operations of the layer at the step; of
        most of all its operations where none is of a step alone; -1 where there are none.
    """
    pattern = re.compile(rf"^({'|'.join(map(re.escape, scopes))})/(?:step_(\d+)/)?")
    counts: dict[tuple[str, int], collections.Counter[int]] = {}
    for name, device in devices.items():
        if match := pattern.search(name):
            cell = match[1], int(match[2] or -1)
            counts.setdefault(cell, collections.Counter())[device] += 1
    num_steps = 1 + max((step for _, step in counts), default=0)
    grid = np.full([len(scopes), max(1, num_steps)], -1, np.int32)
    for i, scope in enumerate(scopes):
        chosen = {s: c.most_common(1)[0][0] for (other, s), c in counts.items() if other == scope}
        of_all = chosen.pop(-1, -1)
        grid[i] = -1 if chosen else of_all
        grid[i, list(chosen)] = list(chosen.values())
    return grid


def _scopes(model: str) -> list[str]:
    """Lists the layers of a model from the first to the last."""
    entry = MODELS[model]
    layers = [f"layer_{layer}" for layer in range(entry.settings["layers"])]
    if entry.module == "language_model":
        return ["embedding", *layers, "softmax"]
    encoder = [f"encoder/{layer}" for layer in layers]
    if entry.module == "gnmt":
        encoder[:1] = ["encoder/layer_0/forward", "encoder/layer_0/backward"]
    decoder = [f"decoder/{layer}" for layer in layers]
    ends = ["decoder/attention", "softmax"]
    return ["source_embedding", *encoder, "target_embedding", *decoder, *ends]


def _grids(model: str, machine: Machine) -> dict[str, np.ndarray]:
    """Makes the grid of a model by each rule."""
    built = build_model(model)
    source = read_source(built.graph, [built.train_op, built.loss])
    grouped = group_operations(source.op_graph)
    names = tuple(device.name for device in machine.devices)
    groups = grouped.grouping.of_operations(grouped.colocation)
    placements = expert_placements(
        model,
        source.op_graph.names,
        groups,
        grouped.grouping.legal_devices(grouped.colocation, names),
        len(names) - 1,
    )
    pairs = [pair for pair in zip(source.op_graph.names, groups, strict=True) if pair[1] >= 0]
    return {
        rule: device_grid(_scopes(model), {name: int(placement[group]) for name, group in pairs})
        for rule, placement in placements.items()
    }


def _draw(
    path: pathlib.Path, model: str, machine: Machine, grids: Mapping[str, np.ndarray]
) -> bool:
    """Draws a panel for each rule; says so without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return False
    matplotlib.use("Agg")
    from matplotlib import colors, patches, pyplot

    scopes = _scopes(model)
    # What is on the CPU is white.
    palette = ["white", *pyplot.get_cmap("tab10").colors[: len(machine.devices) - 1]]
    figure, panels = pyplot.subplots(
        len(grids),
        1,
        figsize=(10, len(grids) * (1.0 + 0.3 * len(scopes))),
        squeeze=False,
        layout="constrained",
    )
    for axes, (rule, grid) in zip(panels[:, 0], grids.items(), strict=True):
        cells = np.ma.masked_less(grid, 0)
        axes.pcolormesh(
            cells,
            cmap=colors.ListedColormap(palette),
            vmin=-0.5,
            vmax=len(palette) - 0.5,
            edgecolors="grey",
            linewidth=0.3,
        )
        axes.set_facecolor("0.9")
        axes.set_yticks(np.arange(len(scopes)) + 0.5, scopes, fontsize="small")
        axes.set_xlabel("step")
        axes.set_title(f"{MODELS[model].title}: {rule}")
    names = [
        f"{device.type} {i - 1 if i else 0}: {device.model}"
        for i, device in enumerate(machine.devices)
    ]
    handles = [
        patches.Patch(facecolor=color, edgecolor="grey", label=name)
        for color, name in zip(palette, names, strict=True)
    ]
    handles.append(patches.Patch(facecolor="0.9", edgecolor="grey", label="no operation"))
    figure.legend(handles=handles, loc="outside right upper", fontsize="small")
    save_picture(figure, path, dpi=100)
    pyplot.close(figure)
    return True


def main() -> None:
    """Draws the pictures of all rules, one file per model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models", default=",".join(_MODELS), help="models, by comma (default: all recurrent ones)"
    )
    parser.add_argument("--machine", default="4xK80", help="of the catalogue (default 4xK80)")
    parser.add_argument("--out_dir", default="benchmarks/results/experts")
    args = parser.parse_args()
    models = args.models.split(",")
    for model in models:
        if model not in _MODELS:
            parser.error(f"no model {model!r}; there are: {', '.join(_MODELS)}")
    try:
        machine = described_machine(args.machine)
    except MachineError as error:
        parser.error(str(error))
    out_dir = pathlib.Path(args.out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    for model in models:
        path = out_dir / f"{model}.png"
        if _draw(path, model, machine, _grids(model, machine)):
            print(path)


if __name__ == "__main__":
    main()
