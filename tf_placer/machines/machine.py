"""The devices that a graph can be placed on, and the links between them."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from graph_passes.util.json_records import POSITIVE, Rule, read_record
from graph_passes.util.messages import shorten_text
from tf_placer.machines.backends import BACKENDS, Kind, MachineBackend
from tf_placer.machines.emulation_state import find_emulated_spec
from tf_placer.processes import environment_with_gpus

__all__ = ["Count", "Device", "DeviceClass", "Link", "Machine", "MachineError", "Name"]

Name = Annotated[str, Rule(len, "a text that is not empty")]
Count = Annotated[int, POSITIVE]
_Positive = Annotated[float, POSITIVE]
_Secs = Annotated[float, Rule(lambda secs: secs >= 0, "0 or more")]
_Share = Annotated[float, Rule(lambda share: 0 < share <= 1, "greater than 0, and at most 1")]


class MachineError(ValueError):
    """There is no such machine; one sentence says why."""

    def __init__(self, message: str) -> None:
        super().__init__(shorten_text(message))


@dataclasses.dataclass(frozen=True)
class Device:
    """Something that runs operations.

    Attributes:
        name: TensorFlow's full name, "/job:worker/replica:0/task:1/device:CPU:0".
        type: "CPU" or "GPU".
        memory_bytes: how much its operations may hold at once; None when not known or not limited.
        cores: the cores of this machine that it is pinned to; empty when it is not pinned.
        model: the name of its device class, such as "K80"; None unless its machine is described.
        transfer_share: share of the time of the bytes of a transfer from or to it that its
            operations lose, as on a CPU that copies with the cores that it computes on; None when
            not measured.
        transfer_overhead_secs: what they lose to it beside that, whatever its bytes, if the device
            had no other transfer for 10 ms; None when not measured.
    """

    name: str
    type: str
    memory_bytes: int | None = None
    cores: tuple[int, ...] = ()
    model: str | None = None
    transfer_share: float | None = None
    transfer_overhead_secs: float | None = None


@dataclasses.dataclass(frozen=True)
class Link:
    """The way from one device to another.

    Attributes:
        source: name of the device that sends.
        destination: name of the device that receives.
        latency_secs: seconds that a transfer of no bytes takes.
        bandwidth_bytes_per_sec: bytes per second beyond that.
        channel: links that name the same channel carry one transfer at a time among them all; None
            for a channel of its own.
    """

    source: str
    destination: str
    latency_secs: _Secs
    bandwidth_bytes_per_sec: _Positive
    channel: Name | None = None


@dataclasses.dataclass(frozen=True)
class DeviceClass:
    """A model of device, described by its makers and by publications.

    Attributes:
        name: such as "K80".
        type: "CPU" or "GPU".
        memory_bytes: the memory of one such device.
        peak_flops: floating point operations per second of the unit that TensorFlow multiplies
            float32 matrices on, as published.
        memory_bandwidth_bytes_per_sec: of its memory, as published.
        launch_secs: what each operation takes beside its work.
        compute_fraction: the share of `peak_flops` that large contractions reach.
        bandwidth_fraction: the share of the memory bandwidth that large operations reach.
        slots: how many operations it runs at a time.
        source: where the numbers are from.
    """

    name: Name
    type: Literal["CPU", "GPU"]
    memory_bytes: Count
    peak_flops: _Positive
    memory_bandwidth_bytes_per_sec: _Positive
    launch_secs: _Secs
    compute_fraction: _Share
    bandwidth_fraction: _Share
    slots: Count = 1
    source: str = ""


@dataclasses.dataclass(frozen=True)
class Machine:
    """Devices and the links between them.

    Attributes:
        spec: what `find_machine` was asked for; of a machine file, the name in it.
        kind: which of `BACKENDS` it is of.
        devices: the devices; the first is the CPU of the process that holds the session, where
            TensorFlow puts operations that have no device.
        links: one per ordered pair of devices; none where they have not been measured.
        classes: the classes that devices name as their model.
    """

    spec: str
    kind: Kind
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    classes: tuple[DeviceClass, ...] = ()

    @property
    def backend(self) -> MachineBackend:
        """The facts of its kind of machine."""
        return BACKENDS[self.kind]

    @property
    def computes_values(self) -> bool:
        """True if operations compute their values, not their shapes and times alone."""
        if not self.backend.is_timed:
            return False
        spec: str | None = None
        if self.backend.is_described:
            spec = self.spec
        elif self.backend.in_one_process:
            # Processes without GPUs ask for those that have some.
            spec = find_emulated_spec(environment_with_gpus())
        return spec is None or "values" in spec.split(",")[1:]

    @property
    def target(self) -> str:
        """The address of a running cluster for sessions, "grpc://HOST:PORT"; "" for others."""
        return self.spec.partition(",")[0] if self.backend.is_remote else ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of a running cluster that are known, "HOST:PORT" each, task 0 first."""
        if not self.backend.is_remote:
            return ()
        return tuple(self.spec.removeprefix("grpc://").split(","))

    def find_class(self, device: Device) -> DeviceClass:
        """Finds the class of a device of a described machine.

        Raises:
            MachineError: the device has no model, or it is not among the classes.
        """
        for device_class in self.classes:
            if device_class.name == device.model:
                return device_class
        raise MachineError(
            f"machine {self.spec!r}: nothing is known of the model of {device.name}, which only "
            "devices of described machines have"
        )

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form, without what only described machines have if there is none of it."""
        value: dict[str, Any] = {
            "spec": self.spec,
            "kind": self.kind,
            "devices": [
                _without(
                    dataclasses.asdict(device) | {"cores": list(device.cores)},
                    "model",
                    "transfer_share",
                    "transfer_overhead_secs",
                )
                for device in self.devices
            ],
            "links": [_without(dataclasses.asdict(link), "channel") for link in self.links],
        }
        if self.classes:
            value["classes"] = [dataclasses.asdict(known) for known in self.classes]
        return value

    @classmethod
    def from_json(cls, value: object) -> Machine:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: the value is not a machine.
        """
        if isinstance(value, dict) and isinstance(value.get("links"), list):
            # Earlier versions wrote links that were not measured, without numbers.
            measured = [link for link in value["links"] if not _lacks_numbers(link)]
            value = {**value, "links": measured}
        return read_record(cls, value, "a machine")


def _lacks_numbers(link: object) -> bool:
    return isinstance(link, dict) and "latency_secs" in link and link["latency_secs"] is None


def _without(value: dict[str, Any], *optional: str) -> dict[str, Any]:
    """Leaves out those of some entries that are None."""
    return {name: item for name, item in value.items() if name not in optional or item is not None}
