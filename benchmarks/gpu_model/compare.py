"""Compares measured operations with what the analytic model says of a class of the catalogue.

Reads the file that `benchmarks.gpu_model.measure` wrote, on this machine or on another, and writes
a page, the numbers, a picture and the file itself.
"""

from __future__ import annotations

import argparse
import gzip
import pathlib
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu_model.cases import CASES_PATH, read_cases
from benchmarks.gpu_model.comparison import compare
from benchmarks.gpu_model.measurement import read_measurement
from benchmarks.gpu_model.report import comparison_page, comparison_values, draw_comparison
from benchmarks.harness.provenance import provenance
from tf_placer.files import write_bytes, write_json, write_text
from tf_placer.machines.device_classes import device_classes
from tf_placer.machines.machine import DeviceClass

__all__ = ["class_of_device", "main"]


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
        if device.get("type") != "cuda":
            name = "CPU"
        else:
            known = [each for each in classes if each in str(device.get("name"))]
            name = max(known, key=len, default="")
    if name not in classes:
        raise ValueError(
            f"the catalogue has no class of devices {name or device.get('name')!r}; choose one by "
            f"--machine_class: {', '.join(classes)}"
        )
    return classes[name]


def main() -> None:
    """Compares, and writes the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measured", help="the file of the measurement")
    parser.add_argument("--cases", default=str(CASES_PATH))
    parser.add_argument("--machine_class", help="by default, by the name of the device")
    parser.add_argument("--out_dir", default="benchmarks/results/gpu_model")
    args = parser.parse_args()
    try:
        cases = read_cases(args.cases)
        measurement = read_measurement(args.measured, cases.cases)
        known = class_of_device(measurement.device, args.machine_class)
    except (OSError, ValueError) as error:
        parser.exit(1, f"{error}\n")
    comparison = compare(measurement, cases, known)
    made_by = provenance()
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    page = comparison_page(comparison, measurement, known, made_by)
    write_text(out / "comparison.md", page)
    write_json(out / "comparison.json", comparison_values(comparison, measurement, known, made_by))
    # Without a time, the same measurement makes the same file.
    write_bytes(out / "measured.jsonl.gz", gzip.compress(measurement.content, mtime=0))
    draw_comparison(comparison, known, out / "comparison.png")
    print(page)


if __name__ == "__main__":
    main()
