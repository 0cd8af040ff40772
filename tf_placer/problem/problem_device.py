"""The devices of a placement problem, and checks of devices and links."""

from __future__ import annotations

import collections
import dataclasses
import math
import numbers
from collections.abc import Sequence

from graph_passes.util.json_text import format_value
from tf_placer.machines.machine import Link
from tf_placer.problem.problem_error import ProblemError

__all__ = ["ProblemDevice", "check_devices", "check_links", "check_text"]


@dataclasses.dataclass(frozen=True)
class ProblemDevice:
    """A device that runs operations.

    Attributes:
        name: the name, unique in the problem.
        kind: the kind of hardware, such as "CPU", "GPU" or "K80".
        memory_bytes: the memory that operations on the device may hold at once.
        slots: the number of operations that run at a time.
        transfer_share: the share of the time for the bytes of every transfer from or to the device
            that its operations lose, as on a CPU that copies with the core that it computes on.
        transfer_overhead_secs: the additional time that they lose to a transfer of any size, if the
            device had no other transfer for 10 ms; they lose less if it had one.
        is_asynchronous: whether the device gets operations before their inputs are computed, as a
            GPU does, and runs them in that order. It then has one slot and loses nothing to
            transfers.
        copies_in_stream: whether copies from the asynchronous device, and those to it from devices
            that are not asynchronous, run in its stream, between its operations, as they did in
            TensorFlow in early 2016.
        fixed_secs: with all operations on the device, the seconds of a step that a smaller batch
            takes, too: of launches, and of updates of variables; 0 if unknown.
    """

    name: str
    kind: str
    memory_bytes: int
    slots: int = 1
    transfer_share: float = 0.0
    transfer_overhead_secs: float = 0.0
    is_asynchronous: bool = False
    copies_in_stream: bool = False
    fixed_secs: float = 0.0


def check_devices(devices: Sequence[ProblemDevice]) -> None:
    """Checks each device, and that all names differ.

    Raises:
        ProblemError: a device is invalid.
    """
    seen: dict[str, int] = {}
    for index, device in enumerate(devices):
        entry = f"devices[{index}]"
        check_text(f"{entry}.name", device.name)
        check_text(f"{entry}.kind", device.kind)
        _check_whole(f"{entry}.memory_bytes", device.memory_bytes, 0, 2**63 - 1, device.name)
        _check_whole(f"{entry}.slots", device.slots, 1, 2**31 - 1, device.name)
        share = device.transfer_share
        if not (_is_finite(share) and 0 <= share <= 1):
            raise ProblemError(
                f"{entry}.transfer_share is {format_value(share)} (device "
                f"{format_value(device.name)}): it must be a number from 0 to 1"
            )
        for name in ("transfer_overhead_secs", "fixed_secs"):
            secs = getattr(device, name)
            if not (_is_finite(secs) and secs >= 0):
                raise ProblemError(
                    f"{entry}.{name} is {format_value(secs)} (device {format_value(device.name)}): "
                    "it must be a finite number of seconds, 0 or more"
                )
        _check_asynchronous(entry, device)
        if seen.setdefault(device.name, index) != index:
            raise ProblemError(
                f"{entry}.name is {format_value(device.name)}, which devices[{seen[device.name]}] "
                "is called already"
            )


def _check_asynchronous(entry: str, device: ProblemDevice) -> None:
    for name, value in (
        ("asynchronous", device.is_asynchronous),
        ("copies_in_stream", device.copies_in_stream),
    ):
        if type(value) is not bool:
            raise ProblemError(
                f"{entry}.{name} is {format_value(value)} (device {format_value(device.name)}): it "
                "must be true or false"
            )
    if device.copies_in_stream and not device.is_asynchronous:
        raise ProblemError(
            f"{entry}.copies_in_stream is true (device {format_value(device.name)}): only an "
            "asynchronous device has a stream"
        )
    if not device.is_asynchronous:
        return
    if device.slots != 1:
        raise ProblemError(
            f"{entry}.slots is {device.slots} (device {format_value(device.name)}): an "
            "asynchronous device has 1"
        )
    for name in ("transfer_share", "transfer_overhead_secs"):
        if getattr(device, name):
            raise ProblemError(
                f"{entry}.{name} is {getattr(device, name)} (device {format_value(device.name)}): "
                "an asynchronous device loses nothing to transfers"
            )


def check_links(devices: Sequence[ProblemDevice], links: Sequence[Link]) -> None:
    """Checks each link, and that every ordered pair of devices has one.

    Raises:
        ProblemError: a link is invalid or missing.
    """
    names = [device.name for device in devices]
    seen: dict[tuple[str, str], int] = {}
    for index, link in enumerate(links):
        entry = f"links[{index}]"
        for end, name in (("source", link.source), ("destination", link.destination)):
            if name not in names:
                raise ProblemError(
                    f"{entry}.{end} is {format_value(name)}, and no device is called so"
                )
        if link.source == link.destination:
            raise ProblemError(f"{entry} leads from {format_value(link.source)} to itself")
        pair = f"from {format_value(link.source)} to {format_value(link.destination)}"
        first = seen.setdefault((link.source, link.destination), index)
        if first != index:
            raise ProblemError(f"{entry} leads {pair}, as links[{first}] does already")
        latency_secs, bandwidth = link.latency_secs, link.bandwidth_bytes_per_sec
        if not (_is_finite(latency_secs) and latency_secs >= 0):
            raise ProblemError(
                f"{entry}.latency_secs is {format_value(latency_secs)} ({pair}): it must be a "
                "finite number of seconds, 0 or more"
            )
        if not (_is_finite(bandwidth) and bandwidth > 0):
            raise ProblemError(
                f"{entry}.bandwidth_bytes_per_sec is {format_value(bandwidth)} ({pair}): it must "
                "be a finite number greater than 0"
            )
        if link.channel is not None:
            check_text(f"{entry}.channel", link.channel)
    missing = [(a, b) for a in names for b in names if a != b and (a, b) not in seen]
    lacking = collections.Counter(destination for _, destination in missing)
    for index, name in enumerate(names):
        if lacking[name] and lacking[name] == len(names) - 1:
            raise ProblemError(
                f"devices[{index}] ({format_value(name)}) is unreachable: no link leads to it"
            )
    if missing:
        source, destination = map(format_value, missing[0])
        raise ProblemError(f"links has none from {source} to {destination}: every pair needs one")


def check_text(entry: str, value: object) -> None:
    """Checks that an entry is text.

    Raises:
        ProblemError: the entry is something else.
    """
    if not isinstance(value, str):
        raise ProblemError(f"{entry} is {format_value(value)}: it must be text")


def _check_whole(entry: str, value: object, least: int, most: int, name: str) -> None:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or not least <= value <= most:  # type: ignore[operator]
        raise ProblemError(
            f"{entry} is {format_value(value)} (device {format_value(name)}): it must be a whole "
            f"number from {least} to {most}"
        )


def _is_finite(value: object) -> bool:
    if type(value) is bool or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # An integer with hundreds of digits does not fit into a float.
        return False
