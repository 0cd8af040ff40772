"""Devices and links of a placement problem, for people and for programs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.device_labels import device_labels
from tf_placer.text.table import table
from tf_placer.text.units import format_bytes, format_step

__all__ = ["problem_table", "problem_values"]


def problem_table(problem: PlacementProblem) -> str:
    """Formats the devices, and the links by kind, as tables without a final newline.

    Links of one kind go from devices of one kind to devices of one kind, and are equally fast.
    """
    labels = device_labels([device.name for device in problem.devices])
    devices = table(
        ["device", "kind", "memory", "all operations"],
        [
            [
                labels[device.name],
                device.kind,
                format_bytes(device.memory_bytes),
                format_step(secs),
            ]
            for device, secs in zip(problem.devices, _sum_compute_secs(problem), strict=True)
        ],
        "llrr",
    )
    if not problem.links:
        return devices
    kinds = {device.name: device.kind for device in problem.devices}
    alike: dict[tuple[str, str, float, float], list[Link]] = {}
    for link in problem.links:
        ends = kinds[link.source], kinds[link.destination]
        speed = link.latency_secs, link.bandwidth_bytes_per_sec
        alike.setdefault((*ends, *speed), []).append(link)
    rows = []
    for (source, destination, latency_secs, bandwidth_bytes_per_sec), links in alike.items():
        is_one = len(links) == 1
        rows.append(
            [
                labels[links[0].source] if is_one else f"each {source}",
                labels[links[0].destination] if is_one else f"each {destination}",
                len(links),
                # A link without a named channel is its own channel.
                len({link.channel or (link.source, link.destination) for link in links}),
                format_step(latency_secs),
                f"{format_bytes(int(bandwidth_bytes_per_sec))}/s",
            ]
        )
    headers = ["from", "to", "links", "channels", "latency", "bandwidth"]
    return f"{devices}\n\n{table(headers, rows, 'llrrrr')}"


def problem_values(problem: PlacementProblem) -> dict[str, Any]:
    """Makes the JSON form of the devices, all links, and the sizes."""
    return {
        "operations": problem.num_operations,
        "groups": problem.num_groups,
        "tensors": problem.num_tensors,
        "devices": [
            {
                "name": device.name,
                "kind": device.kind,
                "memory_bytes": device.memory_bytes,
                "all_operations_secs": secs,
            }
            for device, secs in zip(problem.devices, _sum_compute_secs(problem), strict=True)
        ],
        "links": [dataclasses.asdict(link) for link in problem.links],
    }


def _sum_compute_secs(problem: PlacementProblem) -> list[float]:
    """Adds up the times of all operations that each device can run."""
    secs = problem.compute_secs
    sums: list[float] = np.where(np.isfinite(secs), secs, 0).sum(axis=0).tolist()
    return sums
