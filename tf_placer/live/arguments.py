"""The arguments of a search, checked before anything starts."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any, get_args

from graph_passes.util.json_text import shown
from tf_placer.machines.backends import Kind
from tf_placer.machines.machine import Device, Machine, MachineError
from tf_placer.placers import check_options, is_learned, start_of
from tf_placer.search.budget import Budget

__all__ = ["check_budget", "check_machine", "check_placer", "check_seed"]

# Of NumPy's generators, of TensorFlow's and of the native core.
_MOST = 2**63


def check_machine(machine: object) -> None:
    """Makes sure that this can be a machine.

    Raises:
        MachineError: it is none of what `find_machine` takes, and no machine.
    """
    if machine is None or isinstance(machine, str):
        return
    if not isinstance(machine, Machine):
        raise MachineError(
            "machine is a name such as 'local:2', a tf_placer.Machine or None, not "
            f"{_described(machine)}"
        )
    devices = machine.devices
    if machine.kind not in get_args(Kind):
        raise MachineError(f"machine {shown(machine.spec)} is of no kind that there is")
    if not isinstance(devices, tuple) or not all(isinstance(each, Device) for each in devices):
        raise MachineError(f"machine {shown(machine.spec)}: devices is not a tuple of Device")
    names = [device.name for device in devices]
    for name in names:
        if names.count(name) > 1:
            raise MachineError(f"machine {shown(machine.spec)} has the device {shown(name)} twice")
    if not devices:
        raise MachineError(f"machine {shown(machine.spec)} has no devices")


def check_placer(placer: object, options: object) -> dict[str, Any]:
    """Makes sure that there is a placer with such settings, and converts these.

    Live, samples are few: a placer that learns starts at `expert`, unless it has a start of its
    own or is told otherwise.

    Raises:
        ImportError: there are options and TensorFlow is not installed.
        ValueError: there is no such placer or setting.
    """
    if not isinstance(placer, str):
        raise ValueError(f"placer is a name such as 'auto', not {_described(placer)}")
    if options is not None and not isinstance(options, Mapping):
        raise ValueError(f"placer_options map names to values, unlike {_described(options)}")
    for name in options or ():
        if not isinstance(name, str):
            raise ValueError(f"a name in placer_options is a text, not {_described(name)}")
    checked = check_options(placer, options)
    if is_learned(placer) and "start" not in checked and start_of(placer, checked) is None:
        return {"start": "expert", **checked}
    return checked


def check_budget(max_trials: object, max_secs: object) -> tuple[int, float]:
    """Makes sure that a search can have this budget, and makes it of Python's own numbers.

    Raises:
        ValueError: it cannot.
    """
    if isinstance(max_trials, bool) or not isinstance(max_trials, numbers.Integral):
        raise ValueError(f"max_trials is a whole number, not {_described(max_trials)}")
    if isinstance(max_secs, bool) or not isinstance(max_secs, numbers.Real):
        raise ValueError(f"max_secs is a number, not {_described(max_secs)}")
    try:
        secs = float(max_secs)
    except OverflowError:  # A number of hundreds of digits.
        raise ValueError(f"max_secs is a number, not {_described(max_secs)}") from None
    budget = Budget(int(max_trials), secs)
    return budget.max_trials, budget.max_secs


def check_seed(seed: object) -> int:
    """Makes sure that random generators can take a seed, and makes it a number of Python's own.

    Raises:
        ValueError: they cannot.
    """
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral):
        raise ValueError(f"seed is a whole number, not {_described(seed)}")
    number = int(seed)
    if not 0 <= number < _MOST:
        wrong = "negative" if number < 0 else "2**63 or more"
        raise ValueError(f"seed must not be {wrong}, but is {shown(number)}")
    return number


def _described(value: object) -> str:
    try:
        text = repr(value) if isinstance(value, str | int | float | bytes | None) else ""
    except ValueError:  # A number of thousands of digits.
        text = ""
    kind = type(value).__name__
    return text if text and len(text) <= 60 else f"a value of type {kind}"
