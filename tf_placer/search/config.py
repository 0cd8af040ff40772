"""The settings of a search, live or planned, which check themselves once."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from graph_passes.util.json_records import check_entries, read_value
from graph_passes.util.json_text import shown
from graph_passes.util.paths import check_path
from tf_placer.machines.backends import Kind
from tf_placer.machines.machine import Device, Machine, MachineError
from tf_placer.placers import AUTO, check_options, is_learned, start_of
from tf_placer.search.budget import Budget
from tf_placer.search.distributed.workers import Workers, check_is_for_controllers, find_workers

if TYPE_CHECKING:
    import os

    import tensorflow as tf

__all__ = ["SearchConfig", "check_machine", "check_seed", "read_settings", "starting_options"]

# The limit of the generators of NumPy, of TensorFlow and of the native core.
_MOST = 2**63
_CONFIG_PROTO = "tensorflow.ConfigProto"


@dataclasses.dataclass(frozen=True)
class SearchConfig:
    """The settings of a search; a plan has no use for those of the machine.

    Numbers become Python's own, and the values of options those of their settings.

    Attributes:
        machine: where to place: a name such as "local:2", a Machine, or None for "attached".
        placer: who searches; see `tf_placer.placers.PLACERS`.
        placer_options: settings of the placer that differ from its defaults.
        max_trials: trials at most, the graph as it came included.
        max_secs: seconds at most, from the call to its end.
        seed: of everything random.
        log_dir: directory for the log; None for a new temporary one.
        report: a file (.html) for the page about the search, which is written if something was
            measured; None for none. Needs `tf_placer[report]`.
        tensorboard: a directory for runs of TensorBoard, `original` and `found`: the graph by
            device and computing time, scalars, and pictures, where it is known what operations
            cost; None for none.
        session_config: the configuration of the user's sessions; None for that of the machine.
        restore_from: values that the variables of a graph begin with: a checkpoint, a directory
            whose latest checkpoint is taken, or a session that has run; None for those of the
            initializers.
        workers: who measures trials in parallel, each on a machine of its own with devices like
            those of `machine`: "ray" for workers that are started on this computer, "auto" for the
            Ray cluster that runs here, "ray://HOST:PORT" for one elsewhere; None for this computer,
            one trial at a time. Needs `tf_placer[ray]`.
        num_workers: how many workers at most; None for one on this computer, and for as many as a
            cluster has.
        controllers: how many processes of a placer that learns sample placements and share one set
            of weights, each of which waits for its own placements only; None for the search itself.
            Needs workers.

    Raises:
        ImportError: the placer has options and needs TensorFlow, which is not installed, or workers
            are wanted and Ray is not.
        MachineError: the machine is none that there can be.
        ValueError: one is of another type or out of range, or there is no such placer or option.
    """

    machine: str | Machine | None = None
    placer: str = AUTO
    placer_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    max_trials: int = 150
    max_secs: float = 600.0
    seed: int = 0
    log_dir: str | os.PathLike[str] | None = None
    report: str | os.PathLike[str] | None = None
    tensorboard: str | os.PathLike[str] | None = None
    session_config: tf.compat.v1.ConfigProto | None = None
    restore_from: Any = None
    workers: str | None = None
    num_workers: int | None = None
    controllers: int | None = None

    def __post_init__(self) -> None:
        workers = find_workers(self.workers, self.num_workers, self.controllers)
        check_machine(self.machine)
        options = _checked_options(self.placer, self.placer_options)
        check_is_for_controllers(workers, self.placer, options)
        max_trials, max_secs = _checked_budget(self.max_trials, self.max_secs)
        seed = check_seed(self.seed)
        kind = getattr(getattr(self.session_config, "DESCRIPTOR", None), "full_name", None)
        if self.session_config is not None and kind != _CONFIG_PROTO:
            kind = type(self.session_config).__name__
            raise ValueError(f"session_config is a ConfigProto, not {kind}")
        for path, argument, kind in (
            (self.log_dir, "log_dir", "directory"),
            (self.report, "report", "file"),
            (self.tensorboard, "tensorboard", "directory"),
        ):
            if path is not None:
                check_path(path, argument, kind)
        checked: dict[str, Any] = {
            "placer_options": options,
            "max_trials": max_trials,
            "max_secs": max_secs,
            "seed": seed,
            "num_workers": None if workers is None else workers.count,
            "controllers": None if workers is None else workers.controllers,
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def found_machine(self) -> Machine:
        """The machine, of a config whose machine was looked up."""
        assert isinstance(self.machine, Machine)
        return self.machine

    @property
    def found_session_config(self) -> tf.compat.v1.ConfigProto:
        """The configuration of sessions, of a config in which it is decided."""
        assert self.session_config is not None
        return self.session_config

    @property
    def wanted_workers(self) -> Workers | None:
        """The workers and controllers; None where this process measures by itself."""
        if self.workers is None:
            return None
        return Workers(self.workers, self.num_workers, self.controllers or 1)

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form of what decides how a search goes, the sessions' configuration apart.

        Where a search is kept, and what is written about it, may be another place the next time.
        """
        machine, workers = self.machine, self.wanted_workers
        return {
            "machine": machine.to_json() if isinstance(machine, Machine) else machine,
            "placer": self.placer,
            "placer_options": dict(self.placer_options),
            "max_trials": self.max_trials,
            "max_secs": self.max_secs if math.isfinite(self.max_secs) else None,
            "seed": self.seed,
            "workers": None if workers is None else workers.to_json(),
        }

    @classmethod
    def from_json(cls, value: Any) -> SearchConfig:
        """Reads what `to_json` wrote, in this version or an earlier one, which knew no workers.

        Raises:
            ImportError, ValueError: the value is none, or there is no such search; see the class.
        """
        return cls(**read_settings(value))


def read_settings(value: Any) -> dict[str, Any]:
    """Reads what `SearchConfig.to_json` wrote by its types, whether there is such a search or not.

    What was searched once need not be what can be searched here and now.

    Args:
        value: as `parse_json` gives it; other entries are left out.

    Returns:
        What `SearchConfig` takes.

    Raises:
        ValueError: an entry is missing, or of another type.
    """
    required = ("machine", "placer", "placer_options", "max_trials", "max_secs", "seed")
    check_entries(value, required)

    def read(kind: Any, name: str) -> Any:
        return read_value(kind, value.get(name), name)

    max_secs = read(float | None, "max_secs")
    workers = read(Workers | None, "workers")
    return {
        "machine": read(str | Machine | None, "machine"),
        "placer": read(str, "placer"),
        "placer_options": read(Mapping[str, Any], "placer_options"),
        "max_trials": read(int, "max_trials"),
        "max_secs": math.inf if max_secs is None else max_secs,
        "seed": read(int, "seed"),
        "workers": None if workers is None else workers.address,
        "num_workers": None if workers is None else workers.count,
        "controllers": None if workers is None else workers.controllers,
    }


def starting_options(
    placer: str, options: Mapping[str, Any], *, is_simulated: bool
) -> Mapping[str, Any]:
    """Decides where a placer that learns begins, unless it has a start or is told otherwise.

    Live, samples are few, and from nothing no placer learns a split by layer in as many: it begins
    at `expert`. In simulation it has thousands, and begins as in its paper: what it finds is then
    its own.

    Args:
        placer: one of `PLACERS`.
        options: its settings that differ from its defaults, checked.
        is_simulated: whether trials are simulated.

    Returns:
        The options, with a start where one is decided.
    """
    if is_simulated or not is_learned(placer) or "start" in options:
        return options
    return options if start_of(placer, options) is not None else {"start": "expert", **options}


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


def _checked_options(placer: object, options: object) -> dict[str, Any]:
    """Makes sure that there is a placer with such settings, and converts these.

    Raises:
        ImportError: there are options and TensorFlow is not installed.
        ValueError: there is no such placer or setting.
    """
    if not isinstance(placer, str):
        raise ValueError(f"placer is a name such as 'auto', not {_described(placer)}")
    if not isinstance(options, Mapping):
        raise ValueError(f"placer_options map names to values, unlike {_described(options)}")
    for name in options:
        if not isinstance(name, str):
            raise ValueError(f"a name in placer_options is a text, not {_described(name)}")
    return check_options(placer, options)


def _checked_budget(max_trials: object, max_secs: object) -> tuple[int, float]:
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
