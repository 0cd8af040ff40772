"""The text that tells the plugin which machine it emulates.

A record per line, its fields separated by tabs:

    mode      times | values
    slowdown  FACTOR
    device    MODEL  MEMORY_BYTES  FLOPS_PER_SEC  BYTES_PER_SEC  LAUNCH_SECS
    link      SOURCE  DESTINATION  LATENCY_SECS  BYTES_PER_SEC  CHANNEL
    kernel    OPERATION  TYPES  HOST_ARGUMENTS  WORK_RULE  [forwards]

GPUs have the numbers 0, 1, ...; the host is -1. What kernels the CUDA build has, with their
types and host-memory arguments, is in `data/cuda_kernels.tsv`.
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
# Kernels of the CUDA build that write their output over an input that nobody else reads.
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
    """Writes down an emulated machine for the plugin.

    Args:
        machine: of kind "emulated".

    Returns:
        The text; the same machine always has the same.

    Raises:
        MachineError: a device has no class.
    """
    return "\n".join("\t".join(record) for record in _records(machine)) + "\n"


def _records(machine: Machine) -> Iterator[tuple[str, ...]]:
    options = parse_emulation_options(machine.spec)
    yield "mode", "values" if options.computes_values else "times"
    yield "slowdown", repr(options.slowdown)
    # Sessions may see a part of the GPUs, and others in the same process the rest.
    described = make_described_machine(options.machine)
    for device in described.devices[1:]:
        yield ("device", *_device_fields(described, device))
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
    yield from _kernel_records()


def _device_fields(machine: Machine, device: Device) -> tuple[str, ...]:
    known = machine.find_class(device)
    return (
        known.name,
        str(device.memory_bytes),
        repr(known.peak_flops * known.compute_fraction),
        repr(known.memory_bandwidth_bytes_per_sec * known.bandwidth_fraction),
        repr(known.launch_secs),
    )


@functools.cache
def _kernel_records() -> tuple[tuple[str, ...], ...]:
    file = importlib.resources.files("tf_placer.emulated") / "data" / "cuda_kernels.tsv"
    records = []
    for line in file.read_text(encoding="utf-8").splitlines():
        op_type, types, host_arguments = line.split("\t")
        forwards = ("forwards",) if op_type in _FORWARDING else ()
        record = ("kernel", op_type, types, host_arguments, kernel_rule(op_type), *forwards)
        records.append(record)
    return tuple(records)
