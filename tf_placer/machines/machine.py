"""The devices for the operations of a graph, and the links between them."""

from __future__ import annotations

import collections
import dataclasses
from typing import Annotated, Any, Literal

from graph_passes.util.json_records import POSITIVE, Rule, read_record
from graph_passes.util.messages import shorten_text
from tf_placer.machines.backends import BACKENDS, Kind, MachineBackend
from tf_placer.machines.emulation_state import find_emulated_spec
from tf_placer.processes import environment_with_gpus

__all__ = [
    "Count",
    "Device",
    "DeviceClass",
    "Link",
    "Machine",
    "MachineError",
    "Name",
    "name_worker_cpu",
]

Name = Annotated[str, Rule(len, "a text that is not empty")]
Count = Annotated[int, POSITIVE]
_Bytes = Annotated[int, Rule(lambda count: count >= 0, "0 or more")]
_Positive = Annotated[float, POSITIVE]
_Secs = Annotated[float, Rule(lambda secs: secs >= 0, "0 or more")]
_Share = Annotated[float, Rule(lambda share: 0 < share <= 1, "greater than 0, and at most 1")]


class MachineError(ValueError):
    """A machine that does not exist or does not answer; the message gives the reason."""

    def __init__(self, message: str) -> None:
        super().__init__(shorten_text(message))


@dataclasses.dataclass(frozen=True)
class Device:
    """A processor that runs operations.

    Attributes:
        name: TensorFlow's full name, "/job:worker/replica:0/task:1/device:CPU:0".
        type: "CPU" or "GPU".
        memory_bytes: the memory for tensors of its operations; None if unknown or not limited.
        cores: the cores of this computer that it is pinned to; empty if it is not pinned.
        model: the name of its device class, such as "K80"; None unless its machine is described.
        transfer_share: the share of the copying time of a transfer from or to the device that is
            lost to its operations, as on a CPU that copies with the cores that it computes on; None
            if not measured.
        transfer_overhead_secs: the time that its operations lose to each transfer in addition,
            regardless of the bytes, if the device had no other transfer for 10 ms; None if not
            measured.
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
    """A connection from one device to another.

    Attributes:
        source: name of the device that sends.
        destination: name of the device that receives.
        latency_secs: the time of a transfer without bytes.
        bandwidth_bytes_per_sec: the bytes per second after the latency.
        channel: the name of its channel. Links with the same channel carry one transfer at a time
            together; None for a channel of its own.
    """

    source: str
    destination: str
    latency_secs: _Secs
    bandwidth_bytes_per_sec: _Positive
    channel: Name | None = None


@dataclasses.dataclass(frozen=True)
class DeviceClass:
    """A model of device, with numbers from its makers and from publications.

    Attributes:
        name: the name, such as "K80".
        type: "CPU" or "GPU".
        memory_bytes: the memory of one device.
        peak_flops: the published floating point operations per second of the unit on which
            TensorFlow multiplies float32 matrices.
        memory_bandwidth_bytes_per_sec: the published bandwidth of its memory.
        launch_secs: the constant time of each operation, in addition to its work.
        compute_fraction: the share of `peak_flops` that large contractions reach.
        bandwidth_fraction: the share of the memory bandwidth that large operations reach.
        slots: the number of operations that it runs at a time.
        source: the source of the numbers.
        full_product_size: the smallest dimension of a matrix product from which on it reaches
            `compute_fraction`; below, it reaches a share in proportion to that dimension.
        copies_in_stream: whether the copies of a GPU run between its operations, in their stream,
            instead of beside them.
        workspace_bytes: the most memory that a convolution takes for the matrix of its windows.
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
    full_product_size: Count = 1
    copies_in_stream: bool = False
    workspace_bytes: _Bytes = 0


@dataclasses.dataclass(frozen=True, repr=False)
class Machine:
    """Devices and the links between them.

    Attributes:
        spec: the name of the machine for `find_machine`, or the name in its machine file.
        kind: its kind, a key of `BACKENDS`.
        devices: the devices; the first is the CPU of the process that holds the session, where
            TensorFlow puts operations that have no device.
        links: one per ordered pair of devices; empty if they have not been measured.
        classes: the classes of its devices.
    """

    spec: str
    kind: Kind
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    classes: tuple[DeviceClass, ...] = ()

    def __repr__(self) -> str:
        counts = collections.Counter(device.model or device.type for device in self.devices)
        what = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        return f"<Machine {self.spec!r}: {what}>"

    @property
    def backend(self) -> MachineBackend:
        """The properties of its kind of machine."""
        return BACKENDS[self.kind]

    @property
    def computes_values(self) -> bool:
        """True if operations compute values; false if only shapes and durations are emulated."""
        if not self.backend.is_timed:
            return False
        spec: str | None = None
        if self.backend.is_described:
            spec = self.spec
        elif self.backend.in_one_process:
            # This process may hide GPUs that the measuring processes have.
            spec = find_emulated_spec(environment_with_gpus())
        return spec is None or "values" in spec.split(",")[1:]

    @property
    def describes_costs(self) -> bool:
        """True if its description gives the costs of operations, so that nothing is profiled."""
        return self.backend.is_described and not self.computes_values

    @property
    def target(self) -> str:
        """The session target of a running cluster, "grpc://HOST:PORT"; "" for other machines."""
        return self.spec.partition(",")[0] if self.backend.is_remote else ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The known addresses of a running cluster, "HOST:PORT" each, task 0 first."""
        if not self.backend.is_remote:
            return ()
        return tuple(self.spec.removeprefix("grpc://").split(","))

    def find_class(self, device: Device) -> DeviceClass:
        """Finds the class of a device of a described machine.

        Raises:
            MachineError: the device has no model, or the machine has no class for the model.
        """
        for device_class in self.classes:
            if device_class.name == device.model:
                return device_class
        raise MachineError(
            f"machine {self.spec!r}: the device class of {device.name} is unknown; only devices of "
            "described machines have one"
        )

    def to_json(self) -> dict[str, Any]:
        """Builds the JSON form, without absent entries that only described machines have."""
        value: dict[str, Any] = {
            "spec": self.spec,
            "kind": self.kind,
            "devices": [
                _remove_missing(
                    dataclasses.asdict(device) | {"cores": list(device.cores)},
                    "model",
                    "transfer_share",
                    "transfer_overhead_secs",
                )
                for device in self.devices
            ],
            "links": [_remove_missing(dataclasses.asdict(link), "channel") for link in self.links],
        }
        if self.classes:
            value["classes"] = [dataclasses.asdict(known) for known in self.classes]
        return value

    @classmethod
    def from_json(cls, value: object) -> Machine:
        """Builds a machine from its JSON form.

        Raises:
            ValueError: the value is not a machine.
        """
        if isinstance(value, dict) and isinstance(value.get("links"), list):
            # Earlier versions also wrote links that were not measured, with null as numbers.
            measured = [link for link in value["links"] if not _lacks_numbers(link)]
            value = {**value, "links": measured}
        return read_record(cls, value, "a machine")


def name_worker_cpu(task: int) -> str:
    """Names the CPU of a worker process, by the number of its task."""
    return f"/job:worker/replica:0/task:{task}/device:CPU:0"


def _lacks_numbers(link: object) -> bool:
    return isinstance(link, dict) and "latency_secs" in link and link["latency_secs"] is None


def _remove_missing(value: dict[str, Any], *optional: str) -> dict[str, Any]:
    """Removes optional entries that are None."""
    return {name: item for name, item in value.items() if name not in optional or item is not None}
