"""Placements that differ only by an exchange of equal devices, which need one measurement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tf_placer.machines.machine import Device, Link

__all__ = ["find_distinct", "find_equal_devices"]


def find_equal_devices(
    devices: Sequence[Device], legal: np.ndarray, links: Sequence[Link] = ()
) -> np.ndarray:
    """Finds devices that are known to be equal: worker processes with as many cores, or models.

    Attached devices are never known to be equal, because TensorFlow does not tell their models.

    Args:
        devices: the devices of the machine.
        legal: bool [num_groups, num_devices], the allowed devices of each group. Equal devices are
            allowed to the same groups.
        links: the links of the machine, if they are known. The exchange of two equal devices
            changes no link.

    Returns:
        int64 [num_devices], for each device the index of the first one that equals it.
    """
    candidates: dict[object, list[int]] = {}
    equal = np.arange(len(devices))
    for index, device in enumerate(devices):
        if not device.cores and device.model is None:
            continue
        kind = device.type, device.memory_bytes, len(device.cores), device.model
        firsts = candidates.setdefault((*kind, legal[:, index].tobytes()), [])
        for first in firsts:
            if _can_exchange(devices[first].name, device.name, links):
                equal[index] = first
                break
        else:
            firsts.append(index)
    return equal


def _can_exchange(one: str, other: str, links: Sequence[Link]) -> bool:
    """Tells whether the links stay the same when two devices exchange their names."""
    renamed = {one: other, other: one}
    by_ends = {(link.source, link.destination): link for link in links}
    # Channels may exchange their names as well, but links that share a channel still have to.
    channels: dict[str, str] = {}
    for link in links:
        source, destination = link.source, link.destination
        image = by_ends[renamed.get(source, source), renamed.get(destination, destination)]
        if (image.latency_secs, image.bandwidth_bytes_per_sec) != (
            link.latency_secs,
            link.bandwidth_bytes_per_sec,
        ):
            return False
        channel = link.channel or f"{link.source} to {link.destination}"
        image_channel = image.channel or f"{image.source} to {image.destination}"
        if channels.setdefault(channel, image_channel) != image_channel:
            return False
    return len(set(channels.values())) == len(channels)


def find_distinct(
    placements: np.ndarray, known: Sequence[Sequence[int]], equal: np.ndarray
) -> np.ndarray:
    """Finds placements that no exchange of equal devices makes a known or an earlier one.

    Args:
        placements: int32 [num_placements, num_groups].
        known: placements that need no other measurement.
        equal: the result of `find_equal_devices`.

    Returns:
        bool [num_placements].
    """
    seen = {_canonical_form(np.asarray(row), equal) for row in known}
    is_distinct = np.zeros(len(placements), bool)
    for number, row in enumerate(placements):
        form = _canonical_form(row, equal)
        is_distinct[number] = form not in seen
        seen.add(form)
    return is_distinct


def _canonical_form(row: np.ndarray, equal: np.ndarray) -> bytes:
    """Exchanges equal devices so that they are first used in the order of their numbers."""
    used, first = np.unique(row, return_index=True)
    renamed = np.arange(len(equal))
    for index in np.unique(equal):
        in_use = [device for device in used[np.argsort(first)] if equal[device] == index]
        renamed[in_use] = np.flatnonzero(equal == index)[: len(in_use)]
    return renamed[row].astype(np.int32).tobytes()
