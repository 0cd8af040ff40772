"""The page and the picture of measured operations beside the catalogue's model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu_model.comparison import Comparison, Fit, KindRow, ModelRow
from benchmarks.gpu_model.measurement import Measurement
from benchmarks.harness.pictures import save_picture
from tf_placer.machines.machine import DeviceClass
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_step

__all__ = ["comparison_page", "comparison_values", "draw_comparison"]

_SHORT_KEY = 110


def comparison_page(
    comparison: Comparison,
    measurement: Measurement,
    known: DeviceClass,
    made_by: Mapping[str, Any],
) -> str:
    """Formats the page.

    Args:
        comparison: the ratios.
        measurement: what was measured.
        known: the class of devices.
        made_by: as `provenance` gives it.
    """
    device = measurement.device
    libraries = ", ".join(
        f"{name} {device[name]}" for name in ("torch", "cuda", "cudnn") if device.get(name)
    )
    paragraphs = [
        f"# {device.get('name', 'A device')} beside the class {known.name} of the catalogue",
        f"Measured with {libraries}, on one device: {len(measurement.cases)} operations of the "
        f"models; {len(measurement.failures)} failed or have no call, {measurement.missing} were "
        "not reached. Inputs come from memory, not from caches; contractions use TF32 where the "
        "device has it, as TensorFlow does by default. A ratio is measured by modeled time.",
        "## Steps, as the sum of their operations",
        _models_table(comparison.models),
        "Measured: how long the device is busy. TensorFlow's executor needs at least its own time "
        "for each operation beside that, which nothing here measures; `launch_secs` of the "
        "catalogue stands for it. Host: what PyTorch's host needs to start the same operations.",
        "## Kinds of operations",
        _kinds_table(comparison.kinds),
        "Sum: all measured seconds of the kind by all modeled ones, weighted by how often steps "
        "have them. Reached: the share of the peak, or of the memory bandwidth, of operations "
        "whose work takes longer than a launch.",
        "## Numbers of the class",
        _fit_table(comparison.fit, known),
        "Fitted: with these the sums of the operations' seconds are what was measured; every model "
        "counts alike.",
        "## Limits of the device",
        _limits_table(measurement, known),
        "## Farthest off",
        _worst_table(comparison),
    ]
    if measurement.failures:
        lines = [
            f"- `{key[:_SHORT_KEY]}`: {error}"
            for key, error in sorted(measurement.failures.items())[:20]
        ]
        paragraphs += ["## Not measured", "\n".join(lines)]
    if device.get("nvidia_smi"):
        clocks = ", ".join(f"{name} {value}" for name, value in device["nvidia_smi"].items())
        paragraphs.append(f"At the end of the measurement: {clocks}.")
    paragraphs.append(
        f"Command: `{made_by['command']}`, with `measured.jsonl.gz` beside this page, which "
        "`python3 -m benchmarks.gpu_model.measure` made."
    )
    return "\n\n".join(paragraphs) + "\n"


def _models_table(models: tuple[ModelRow, ...]) -> str:
    headers = ["model", "covered", "modeled", "measured", "ratio", "without TF32"]
    headers += ["cached inputs", "host", "fitted", "ratio"]
    rows = [
        [
            row.name,
            f"{100 * row.covered:.0f} %",
            format_step(row.modeled_secs),
            format_step(row.measured_secs),
            f"{row.measured_secs / row.modeled_secs:.2f}",
            format_step(row.float32_secs),
            format_step(row.cached_secs),
            format_step(row.host_secs),
            format_step(row.fitted_secs),
            f"{row.measured_secs / row.fitted_secs:.2f}",
        ]
        for row in models
    ]
    return markdown_table(headers, rows, "l" + "r" * 9)


def _kinds_table(kinds: tuple[KindRow, ...]) -> str:
    headers = ["kind", "operations", "of modeled time", "sum", "median", "10 %", "90 %", "reached"]
    rows = [
        [
            row.kind,
            str(row.cases),
            f"{100 * row.weight:.1f} %",
            f"{row.overall:.2f}",
            f"{row.median:.2f}",
            f"{row.low:.2f}",
            f"{row.high:.2f}",
            _optional(row.reached),
        ]
        for row in kinds
    ]
    return markdown_table(headers, rows, "l" + "r" * 7)


def _fit_table(fit: Fit, known: DeviceClass) -> str:
    launch = "" if fit.launch_secs is None else format_step(fit.launch_secs)
    rows = [
        ["compute_fraction", f"{known.compute_fraction:.2f}", _optional(fit.compute_fraction)],
        [
            "bandwidth_fraction",
            f"{known.bandwidth_fraction:.2f}",
            _optional(fit.bandwidth_fraction),
        ],
        ["launch_secs", format_step(known.launch_secs), launch],
    ]
    return markdown_table(["", "catalogue", "fitted"], rows, "lrr")


def _optional(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _limits_table(measurement: Measurement, known: DeviceClass) -> str:
    rows = []
    for name, row in measurement.limits.items():
        if "secs" not in row:
            rows.append([name, "failed", "", "", ""])
            continue
        host = format_step(row["host_secs"]) if "host_secs" in row else ""
        rate = share = ""
        if "flops_per_sec" in row:
            rate = f"{row['flops_per_sec'] / 1e12:.1f} TFLOPS"
            share = f"{row['flops_per_sec'] / known.peak_flops:.2f} of the peak"
        if "bytes_per_sec" in row:
            rate = f"{row['bytes_per_sec'] / 1e9:.2f} GB/s"
            if name.startswith("copy on the device"):
                # A copy on the device reads and writes its memory.
                moved = 2 * row["bytes_per_sec"] / known.memory_bandwidth_bytes_per_sec
                share = f"{moved:.2f} of the bandwidth"
        rows.append([name, format_step(row["secs"]), host, rate, share])
    return markdown_table(["", "device", "host", "rate", "of the catalogue's"], rows, "lrrrr")


def _worst_table(comparison: Comparison) -> str:
    rows = [
        [row.kind, f"{row.worst.value:.2f}", row.worst.key[:_SHORT_KEY], row.worst.call]
        for row in comparison.kinds
    ]
    return markdown_table(["kind", "ratio", "operation", "call"], rows, "lrll")


def comparison_values(
    comparison: Comparison,
    measurement: Measurement,
    known: DeviceClass,
    made_by: Mapping[str, Any],
) -> dict[str, Any]:
    """Converts the same to what JSON can hold."""
    return {
        "device": dict(measurement.device),
        "machine_class": known.name,
        "limits": {name: dict(row) for name, row in measurement.limits.items()},
        "fit": dataclasses.asdict(comparison.fit),
        "models": [dataclasses.asdict(row) for row in comparison.models],
        "kinds": [dataclasses.asdict(row) for row in comparison.kinds],
        "failures": dict(measurement.failures),
        "missing": measurement.missing,
        "made_by": dict(made_by),
    }


def draw_comparison(
    comparison: Comparison, known: DeviceClass, path: str | os.PathLike[str]
) -> None:
    """Draws measured against modeled seconds of all operations, by kind.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 5.5), constrained_layout=True)
    for number, row in enumerate(comparison.kinds):
        of_kind = [ratio for ratio in comparison.ratios if ratio.kind == row.kind]
        axes.scatter(
            [1e6 * ratio.modeled_secs for ratio in of_kind],
            [1e6 * ratio.measured_secs for ratio in of_kind],
            s=12,
            color=f"C{number % 10}",
            marker="ox"[number // 10 % 2],
            label=row.kind,
        )
    lowest = 1e6 * min(ratio.modeled_secs for ratio in comparison.ratios)
    highest = 1e6 * max(ratio.modeled_secs for ratio in comparison.ratios)
    axes.plot([lowest, highest], [lowest, highest], color="gray", linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(f"µs that the class {known.name} models")
    axes.set_ylabel("µs measured")
    axes.legend(fontsize="x-small", ncols=2)
    save_picture(figure, path, dpi=110)
    pyplot.close(figure)
