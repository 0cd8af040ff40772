"""Describes an emulated machine to the plugin.

The description has a record per line, with fields separated by tabs:

    mode      times | values
    slowdown  FACTOR
    device    MODEL  MEMORY_BYTES  FLOPS_PER_SEC  BYTES_PER_SEC  LAUNCH_SECS
    link      SOURCE  DESTINATION  LATENCY_SECS  BYTES_PER_SEC  CHANNEL
    kernel    OPERATION  TYPES  HOST_ARGUMENTS  WORK_RULE  [forwards]

GPUs have the numbers 0, 1, ...; the host is -1. `data/cuda_kernels.tsv` lists the kernels of the
CUDA build, with their types and host-memory arguments.
"""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Iterator

from graph_passes.kernel_work import kernel_rule
from tf_placer.machines.catalog import make_described_machine
from tf_placer.machines.emulated_machine import parse_emulation_options
from tf_placer.machines.machine import Device, Machine

__all__ = ["describe_machine"]

_HOST = -1
# Kernels of the CUDA build that reuse the buffer of an input without other consumers.
_FORWARDING = frozenset(
    [
        *("Abs", "Add", "AddN", "AddV2", "BiasAdd", "Ceil", "ClipByValue", "Cos", "Div"),
        *("DivNoNan", "Elu", "EluGrad", "Erf", "Exp", "Floor", "Inv", "InvGrad", "LeakyRelu"),
        *("LeakyReluGrad", "Log", "Log1p", "LogSoftmax", "Maximum", "Minimum", "Mul", "MulNoNan"),
        *("Neg", "Pow", "RealDiv", "Reciprocal", "ReciprocalGrad", "Relu", "Relu6", "Relu6Grad"),
        *("ReluGrad", "Round", "Rsqrt", "RsqrtGrad", "Selu", "SeluGrad", "Sigmoid", "SigmoidGrad"),
        *("Sign", "Sin", "Softmax", "Softplus", "SoftplusGrad", "Softsign", "SoftsignGrad"),
        *("Sqrt", "SqrtGrad", "Square", "SquaredDifference", "Sub", "Tanh", "TanhGrad"),
    ]
)


def describe_machine(machine: Machine) -> str:
    """Builds the description of an emulated machine.

    Args:
        machine: a machine of kind "emulated".

    Returns:
        The text, which is always the same for the same machine.

    Raises:
        MachineError: a device has no class.
    """
    return "\n".join("\t".join(record) for record in _build_records(machine)) + "\n"


def _build_records(machine: Machine) -> Iterator[tuple[str, ...]]:
    options = parse_emulation_options(machine.spec)
    yield "mode", "values" if options.computes_values else "times"
    yield "slowdown", repr(options.slowdown)
    # Describe all GPUs: sessions in one process may see different GPUs.
    described = make_described_machine(options.machine)
    for device in described.devices[1:]:
        yield ("device", *_build_device_fields(described, device))
    numbers = {device.name: number + _HOST for number, device in enumerate(described.devices)}
    for i, link in enumerate(described.links):
        yield (
            "link",
            str(numbers[link.source]),
            str(numbers[link.destination]),
            repr(link.latency_secs),
            repr(link.bandwidth_bytes_per_sec),
            link.channel or f"link {i}",
        )
    yield from _read_kernel_records()


def _build_device_fields(machine: Machine, device: Device) -> tuple[str, ...]:
    device_class = machine.find_class(device)
    return (
        device_class.name,
        str(device.memory_bytes),
        repr(device_class.peak_flops * device_class.compute_fraction),
        repr(device_class.memory_bandwidth_bytes_per_sec * device_class.bandwidth_fraction),
        repr(device_class.launch_secs),
    )


@functools.cache
def _read_kernel_records() -> tuple[tuple[str, ...], ...]:
    file = importlib.resources.files("tf_placer.emulated") / "data" / "cuda_kernels.tsv"
    records = []
    for line in file.read_text(encoding="utf-8").splitlines():
        op_type, types, host_arguments = line.split("\t")
        forwards = ("forwards",) if op_type in _FORWARDING else ()
        record = ("kernel", op_type, types, host_arguments, kernel_rule(op_type), *forwards)
        records.append(record)
    return tuple(records)
