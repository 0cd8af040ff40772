"""Compares measured operations with what the analytic model says of a class of the catalogue.

Reads the file that `benchmarks.gpu_model.measure` wrote, on this machine or on another, and writes
a page and the file itself:

    python -m benchmarks.gpu_model.compare measured.jsonl
"""

from __future__ import annotations

import argparse
import gzip
import pathlib
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu_model.cases import read_cases
from benchmarks.gpu_model.comparison import Comparison
from benchmarks.gpu_model.measurement import Measurement, read_measurement
from benchmarks.harness.provenance import provenance
from tf_placer.files import write_bytes, write_text
from tf_placer.machines.device_classes import device_classes
from tf_placer.machines.machine import DeviceClass
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_step

__all__ = ["class_of_device", "comparison_page", "main"]

_SHORT_KEY = 110
_PAGE = """# {device} beside the class {name} of the catalogue

Measured with {libraries}, on one device: {measured} operations of the models; {failed} failed or \
have no call, {missing} were not reached. Inputs come from memory, not from caches; contractions \
use TF32 where the device has it, as TensorFlow does by default. A ratio is measured by modeled \
time.

## Steps, as the sum of their operations

{models}

Measured: how long the device is busy. TensorFlow's executor needs at least its own time for each \
operation beside that, which nothing here measures; `launch_secs` of the catalogue stands for it. \
Host: what PyTorch's host needs to start the same operations.

## Kinds of operations

{kinds}

Sum: all measured seconds of the kind by all modeled ones, weighted by how often steps have them. \
Reached: the share of the peak, or of the memory bandwidth, of operations whose work takes longer \
than a launch.

## Numbers of the class

{fit}

Fitted: with these the sums of the operations' seconds are what was measured; every model counts \
alike.

## Limits of the device

{limits}

## Farthest off

{worst}
"""


def class_of_device(device: Mapping[str, Any], name: str | None = None) -> DeviceClass:
    """Finds the class of a measured device in the catalogue.

    Args:
        device: as the measurement describes it.
        name: the class, if it is not to be found by the name of the device.

    Raises:
        ValueError: there is no such class.
    """
    classes = device_classes()
    if name is None:
        known = [each for each in classes if each in str(device.get("name"))]
        name = max(known, key=len, default="") if device.get("type") == "cuda" else "CPU"
    if name not in classes:
        raise ValueError(
            f"the catalogue has no class of devices {name or device.get('name')!r}; choose one by "
            f"--machine_class: {', '.join(classes)}"
        )
    return classes[name]


def comparison_page(
    comparison: Comparison, measurement: Measurement, known: DeviceClass, command: str
) -> str:
    """Formats the page."""
    device = measurement.device
    libraries = [f"{name} {device[name]}" for name in ("torch", "cuda", "cudnn") if name in device]
    page = _PAGE.format(
        device=device["name"],
        name=known.name,
        libraries=", ".join(libraries),
        measured=len(measurement.cases),
        failed=len(measurement.failures),
        missing=measurement.missing,
        models=_models_table(comparison),
        kinds=_kinds_table(comparison),
        fit=_fit_table(comparison.fitted, known),
        limits=_limits_table(measurement, known),
        worst=_worst_table(comparison),
    )
    if measurement.failures:
        failed = sorted(measurement.failures.items())[:20]
        lines = [f"- `{key[:_SHORT_KEY]}`: {error}" for key, error in failed]
        page += "\n## Not measured\n\n" + "\n".join(lines) + "\n"
    if device.get("nvidia_smi"):
        clocks = ", ".join(f"{name} {value}" for name, value in device["nvidia_smi"].items())
        page += f"\nAt the end of the measurement: {clocks}.\n"
    return page + (
        f"\nCommand: `{command}`, with `measured.jsonl.gz` beside this page, which "
        "`python3 -m benchmarks.gpu_model.measure` made.\n"
    )


def _models_table(comparison: Comparison) -> str:
    headers = ["model", "covered", "modeled", "measured", "ratio", "without TF32"]
    headers += ["cached inputs", "host", "fitted", "ratio"]
    rows = [
        [
            row["model"],
            f"{100 * row['covered']:.0f} %",
            format_step(row["modeled"]),
            format_step(row["measured"]),
            f"{row['measured'] / row['modeled']:.2f}",
            *(format_step(row[name]) for name in headers[5:9]),
            f"{row['measured'] / row['fitted']:.2f}",
        ]
        for row in comparison.models()
    ]
    return markdown_table(headers, rows, "l" + "r" * 9)


def _kinds_table(comparison: Comparison) -> str:
    headers = ["kind", "operations", "of modeled time", "sum", "median", "10 %", "90 %", "reached"]
    rows = [
        [
            row["kind"],
            str(row["operations"]),
            f"{100 * row['of modeled time']:.1f} %",
            *("" if row[name] is None else f"{row[name]:.2f}" for name in headers[3:]),
        ]
        for row in comparison.kinds()
    ]
    return markdown_table(headers, rows, "l" + "r" * 7)


def _fit_table(fitted: DeviceClass, known: DeviceClass) -> str:
    rows = [
        [name, *(form(getattr(each, name)) for each in (known, fitted))]
        for name, form in (
            ("compute_fraction", "{:.2f}".format),
            ("bandwidth_fraction", "{:.2f}".format),
            ("launch_secs", format_step),
        )
    ]
    return markdown_table(["", "catalogue", "fitted"], rows, "lrr")


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
        [row["kind"], f"{row['ratio']:.2f}", row["worst"].case.key[:_SHORT_KEY], row["worst"].call]
        for row in comparison.kinds()
    ]
    return markdown_table(["kind", "ratio", "operation", "call"], rows, "lrll")


def main() -> None:
    """Compares, and writes the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measured", help="the file of the measurement")
    parser.add_argument("--machine_class", help="by default, by the name of the device")
    parser.add_argument("--out_dir", default="benchmarks/results/gpu_model")
    args = parser.parse_args()
    try:
        cases = read_cases()
        measurement = read_measurement(args.measured, cases.cases)
        known = class_of_device(measurement.device, args.machine_class)
    except (OSError, ValueError) as error:
        parser.exit(1, f"{error}\n")
    comparison = Comparison(measurement.cases, cases, known)
    page = comparison_page(comparison, measurement, known, provenance()["command"])
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "comparison.md", page)
    # Without a time, the same measurement makes the same file.
    write_bytes(out / "measured.jsonl.gz", gzip.compress(measurement.content, mtime=0))
    print(page)


if __name__ == "__main__":
    main()
