"""Runs the signatures of a SavedModel on a machine, and compares them with the original's."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from absl import logging

from graph_passes.device_map import check_new_devices, read_device_map
from graph_passes.errors import GraphError
from tf_placer import emulated
from tf_placer.confirmation.equal_values import describe_difference
from tf_placer.environments.tensor_file import read_tensors
from tf_placer.errors import SearchError
from tf_placer.inputs.feeds_file import read_feeds
from tf_placer.inputs.saved_model_devices import check_saved_devices, rename_saved_devices
from tf_placer.inputs.saved_model_files import read_saved_model
from tf_placer.inputs.saved_signature import (
    explain_no_signatures,
    find_serving_graph,
    list_signatures,
)
from tf_placer.machines.machine import Machine, MachineError
from tf_placer.private_network import (
    NetworkError,
    PrivateNetwork,
    describe_open_servers,
    is_private,
)
from tf_placer.processes import (
    ChildDied,
    ChildProcess,
    ChildTimeout,
    await_message,
    environment_with_gpus,
    environment_without_gpus,
)
from tf_placer.report.device_labels import device_labels
from tf_placer.temporary_directory import temporary_directory
from tf_placer.text.table import table
from tf_placer.text.units import format_bytes, format_step

__all__ = ["SavedModelCheck", "SignatureCheck", "check_saved_model"]

_TIMEOUT_SECS = 600.0
_OWN_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


@dataclasses.dataclass(frozen=True)
class SignatureCheck:
    """The check of a signature.

    Attributes:
        name: the name of the signature.
        error: the reason why it does not run, in one sentence; None if it runs.
        step_secs: the median time of a call after the first ones, with its results copied to the
            host.
        peak_bytes: the peak memory of each device in these calls, by name; None where TensorFlow
            does not tell.
        difference: the first difference from the original, in one sentence; None if there is none,
            or nothing was compared.
        is_compared: whether its results were compared with those of the original.
    """

    name: str
    error: str | None = None
    step_secs: float | None = None
    peak_bytes: Mapping[str, int | None] = dataclasses.field(default_factory=dict)
    difference: str | None = None
    is_compared: bool = False


@dataclasses.dataclass(frozen=True)
class SavedModelCheck:
    """The check of a SavedModel.

    Attributes:
        directory: the SavedModel.
        machine: the machine.
        signatures: the checks of its signatures.
        variable_bytes: the bytes of the variables of these signatures, by device.
    """

    directory: str
    machine: Machine
    signatures: tuple[SignatureCheck, ...]
    variable_bytes: Mapping[str, int]

    @property
    def failure(self) -> str | None:
        """The first failure, in one sentence; None if everything runs and agrees."""
        for each in self.signatures:
            if each.error is not None:
                return (
                    f"the signature {each.name!r} of {self.directory!r} does not run: {each.error}"
                )
        for each in self.signatures:
            if each.difference is not None:
                return (
                    f"the signature {each.name!r} of {self.directory!r} computes other values than "
                    f"the original: {each.difference}"
                )
        return None

    def table(self) -> str:
        """Shows the check for people, without a final newline."""
        rows = []
        for each in self.signatures:
            values = "equal" if each.is_compared else "not compared"
            if each.error is not None:
                values = ""
            elif each.difference is not None:
                values = "different"
            step = None if each.step_secs is None else format_step(each.step_secs)
            rows.append([each.name, "no" if each.error else "yes", step, values])
        signatures = table(["signature", "runs", "step", "values"], rows, "llrl")
        memory = self._list_memory()
        own = [device.name for device in self.machine.devices]
        labels = device_labels(own) | {
            name: f"{device_labels([name])[name]} of the process" for name in memory.keys() - own
        }
        devices = table(
            ["device", "variables", "peak", "memory"],
            [
                [labels[name], *(None if size is None else format_bytes(size) for size in sizes)]
                for name, sizes in memory.items()
            ],
            "lrrr",
        )
        text = f"{signatures}\n\n{devices}"
        if self.machine.backend.is_described and self.machine.computes_values:
            text += (
                "\n\nthe CPU of this computer computes the values, so steps take its time; without "
                "',values' they take the time of the GPUs"
            )
        return text

    def _list_memory(self) -> dict[str, tuple[int, int | None, int | None]]:
        """Lists the bytes of variables, of the peak and of the memory of each device."""
        result = {}
        for device in self.machine.devices:
            peaks = [each.peak_bytes.get(device.name) for each in self.signatures]
            peak = max((size for size in peaks if size is not None), default=None)
            held = self.variable_bytes.get(device.name, 0)
            result[device.name] = (held, peak, device.memory_bytes)
        # Without a placement, variables are in the process itself and not on its servers.
        others = self.variable_bytes.keys() - result.keys()
        return result | {name: (self.variable_bytes[name], None, None) for name in sorted(others)}

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form."""
        return {
            "saved_model": self.directory,
            "machine": self.machine.spec,
            "failure": self.failure,
            "signatures": [dataclasses.asdict(each) for each in self.signatures],
            "devices": [
                {
                    "name": name,
                    "variable_bytes": held,
                    "peak_bytes": peak,
                    "memory_bytes": memory_bytes,
                }
                for name, (held, peak, memory_bytes) in self._list_memory().items()
            ],
        }


def check_saved_model(
    directory: str,
    machine: Machine,
    *,
    original: str | None = None,
    signature_key: str | None = None,
    feeds: str | None = None,
    device_map: Mapping[str, str] | None = None,
    report: Callable[[str], None] = lambda stage: None,
) -> SavedModelCheck:
    """Loads a SavedModel on a machine and calls its signatures, in a process of its own.

    Each signature is called once, with the same inputs as the original, whose calls run on the CPU
    of this computer in another process. Then each is called several times to measure it.

    Args:
        directory: the SavedModel.
        machine: the machine.
        original: another SavedModel, whose signatures must give the same results; None to compare
            nothing.
        signature_key: the only signature to call; None for all.
        feeds: an `.npz` file with values of arguments by name; others are made up, with 1 for
            dimensions of unknown size.
        device_map: new devices by old devices; see `load_placed`.
        report: called with each stage of the work when it begins.

    Raises:
        GraphError: it is no SavedModel, has no such signature, is on a device that the machine does
            not have, or the feeds or the map are wrong.
        MachineError: nothing runs on the machine, or it computes no values to compare.
        SearchError: it cannot be loaded; the message gives the reason.
        ImportError: the GPUs of the machine cannot be emulated.
    """
    _check_machine(machine, compares=original is not None)
    names = _find_signatures(directory, signature_key)
    if original is not None:
        _find_signatures(original, None)
    _check_devices(directory, machine, device_map)
    if feeds is not None:
        read_feeds(feeds)  # Its errors need no process.
    settings = {"signatures": names, "feeds": feeds and os.path.abspath(feeds)}
    with temporary_directory() as scratch:
        placed = _Run(pathlib.Path(scratch), "placed", directory, machine, report)
        measured = placed.call(
            {**settings, "machine": machine.to_json(), "device_map": device_map or {}}
        )
        checks = measured["signatures"]
        if original is not None:
            expected = _Run(pathlib.Path(scratch), "original", original, None, report)
            answers = expected.call({**settings, "machine": None, "device_map": {}})["signatures"]
            for number, (check, answer) in enumerate(zip(checks, answers, strict=True)):
                if check["error"] is None and answer["error"] is None:
                    check["is_compared"] = True
                    check["difference"] = describe_difference(
                        expected.read_values(number), placed.read_values(number)
                    )
                elif check["error"] is None:
                    check["difference"] = f"the original does not run: {answer['error']}"
    return SavedModelCheck(
        directory,
        machine,
        tuple(SignatureCheck(**check) for check in checks),
        measured["variable_bytes"],
    )


def _check_machine(machine: Machine, *, compares: bool) -> None:
    if not machine.backend.is_timed:
        raise MachineError(
            f"nothing runs on {machine.spec!r}, which is only described: check the SavedModel on "
            f"'emulated:{machine.spec}', or on a machine that is there"
        )
    if compares and not machine.computes_values:
        raise MachineError(
            f"the GPUs of {machine.spec!r} compute shapes alone, so that there are no values to "
            "compare with the original: append ',values' to the name of the machine"
        )


def _find_signatures(directory: str, signature_key: str | None) -> list[str]:
    """Lists the signatures to call.

    Raises:
        GraphError: it is no SavedModel, or has no such signature or none at all.
    """
    saved_model = read_saved_model(directory)
    known = list_signatures(saved_model.meta_graphs[find_serving_graph(saved_model, directory)])
    if not known:
        raise GraphError(explain_no_signatures(directory))
    if signature_key is None:
        return known
    if signature_key not in known:
        raise GraphError(
            f"the SavedModel {directory!r} has no signature {signature_key!r}: name one of "
            f"{', '.join(known)}"
        )
    return [signature_key]


def _check_devices(directory: str, machine: Machine, device_map: Mapping[str, str] | None) -> None:
    """Checks, before any process starts, that the machine has the devices of a SavedModel.

    Raises:
        GraphError: a device is missing, or the map is wrong.
    """
    names = [device.name for device in machine.devices]
    # The process that calls the signatures has a CPU of its own.
    names += [] if _OWN_CPU in names else [_OWN_CPU]
    saved_model = read_saved_model(directory)
    if device_map:
        new_names = read_device_map(device_map)
        check_new_devices(new_names, names, machine.spec)
        saved_model = rename_saved_devices(saved_model, new_names)
    number = find_serving_graph(saved_model, directory)
    check_saved_devices(saved_model.meta_graphs[number], names, machine.spec)


@dataclasses.dataclass(frozen=True)
class _Run:
    """The run of a SavedModel in a process of its own.

    Attributes:
        scratch: an existing directory for temporary files.
        name: the name of its folder there.
        directory: the SavedModel.
        machine: the machine; None for the original, on the CPU of this computer.
        report: called with each stage of the run when it begins.
    """

    scratch: pathlib.Path
    name: str
    directory: str
    machine: Machine | None
    report: Callable[[str], None]

    def call(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Calls the signatures; returns the checks and the bytes of variables.

        Raises:
            GraphError, MachineError, SearchError: it cannot be loaded.
        """
        folder = self.scratch / self.name
        folder.mkdir()
        self._begin("starting the process")
        with contextlib.ExitStack() as stack:
            child = ChildProcess(
                f"the process that runs {self.directory!r}",
                "tf_placer.live.signature_check_process",
                {
                    **settings,
                    "directory": os.path.abspath(self.directory),
                    "values": str(folder),
                },
                log_path=folder / "log",
                # The process is killed at the end, and its temporary files go with this directory.
                environ={**self._build_environment(), "TMPDIR": str(folder)},
                network=self._make_network(stack),
            )
            stack.callback(child.stop)
            try:
                return self._listen(child)
            except ChildDied as death:
                tail = child.log_tail()
                raise SearchError(f"{death}{': ' if tail else ''}{tail}") from None
            except ChildTimeout:
                raise SearchError(
                    f"{child.name} did not answer within {_TIMEOUT_SECS:g} s: {child.log_tail()}"
                ) from None

    def _begin(self, stage: str) -> None:
        """Reports a stage of the run, and that it is one of the original."""
        self.report(stage if self.machine is not None else f"{stage} of the original")

    def _listen(self, child: ChildProcess) -> dict[str, Any]:
        signatures: dict[str, dict[str, Any]] = {}
        while True:
            for message in await_message(child, (), time.monotonic() + _TIMEOUT_SECS):
                if "error" in message:
                    errors = {"GraphError": GraphError, "MachineError": MachineError}
                    raise errors.get(message["kind"], SearchError)(message["error"])
                if "stage" in message:
                    self._begin(message["stage"])
                if "signature" in message:
                    signatures[message["signature"]["name"]] = message["signature"]
                if "variable_bytes" in message:
                    return {**message, "signatures": list(signatures.values())}

    def _build_environment(self) -> dict[str, str]:
        """Builds the environment variables of the process, which has the GPUs of the machine."""
        if self.machine is None or not self.machine.backend.in_one_process:
            return environment_without_gpus() | {"no_grpc_proxy": "localhost"}
        if self.machine.backend.is_described:
            return emulated.make_environment(self.machine)
        return environment_with_gpus()

    def _make_network(self, stack: contextlib.ExitStack) -> PrivateNetwork | None:
        """Makes a network for servers that the process starts, which nobody else reaches."""
        if self.machine is None or not self.machine.backend.starts_servers or is_private():
            return None
        try:
            network = PrivateNetwork()
        except NetworkError as error:
            servers = f"the servers of {self.machine.spec}"
            logging.warning("%s", describe_open_servers(servers, str(error)))
            return None
        stack.callback(network.close)
        return network

    def read_values(self, number: int) -> dict[str, np.ndarray]:
        """Reads the results of the first call of a signature, by its number."""
        return read_tensors(self.scratch / self.name / str(number))
