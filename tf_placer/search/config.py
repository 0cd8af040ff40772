"""The settings of a search, live or planned, which are checked when they are made."""

from __future__ import annotations

import dataclasses
import math
import numbers
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from graph_passes.restrictions import (
    Restrictions,
    check_keep_together,
    check_pins,
    resolve_restrictions,
)
from graph_passes.util.json_records import check_entries, read_value
from graph_passes.util.json_text import format_value
from graph_passes.util.messages import shorten_text
from graph_passes.util.path_validation import check_path
from graph_passes.util.suggestions import suggest
from tf_placer.environments.measuring_protocol import (
    ALONE_PROTOCOLS,
    PROTOCOLS,
    TURNS,
    MeasuringProtocol,
)
from tf_placer.files import cache_directory
from tf_placer.former_keywords import accept_former_keywords
from tf_placer.machines.backends import Kind
from tf_placer.machines.machine import Device, Machine, MachineError
from tf_placer.placers import (
    AUTO,
    check_options,
    find_placer,
    find_start,
    find_start_source,
    is_learned,
    name_placer,
)
from tf_placer.placers.former_names import FORMER_PLACERS
from tf_placer.problem.memory_limits import check_headroom, read_max_memory
from tf_placer.search.budget import Budget
from tf_placer.search.distributed.workers import Workers, check_is_for_controllers, find_workers

if TYPE_CHECKING:
    import os

    import tensorflow as tf

__all__ = [
    "DEFAULT_ANSWERS",
    "OBJECTIVES",
    "SearchConfig",
    "check_machine",
    "check_seed",
    "find_answers",
    "override_config",
    "read_settings",
    "starting_options",
]

#: The store of answers in the user's cache, as a value of `SearchConfig.answers`.
DEFAULT_ANSWERS = "default"

#: The values of `SearchConfig.objective`.
OBJECTIVES = ("time", "fit")


def find_answers(answers: str | os.PathLike[str]) -> pathlib.Path:
    """Finds the directory of a store of answers.

    Args:
        answers: the setting: a directory, or `DEFAULT_ANSWERS` for that of the user.
    """
    path = cache_directory() / "answers" if answers == DEFAULT_ANSWERS else answers
    return pathlib.Path(path).absolute()


# The random generators of NumPy, of TensorFlow and of the native core take seeds below this.
_SEED_LIMIT = 2**63
_CONFIG_PROTO = "tensorflow.ConfigProto"


class _DefaultTrials(int):
    """A maximum number of trials that nobody chose."""


class _DefaultSecs(float):
    """A maximum number of seconds that nobody chose."""


@dataclasses.dataclass(frozen=True)
class SearchConfig:
    """The settings of a search; a plan ignores those of the machine.

    Numbers are converted to Python's own types, and options to the types of their settings.

    Attributes:
        machine: the machine to place on: a name such as "local:2", a Machine, or None for
            "attached".
        placer: the name of the placer, as `python -m tf_placer placers` lists them, or
            "module:name". A class, or a function that makes a placer, is replaced by its name.
        placer_options: settings of the placer that differ from its defaults.
        max_trials: the maximum number of trials, including the original graph; by default 150 live,
            and no limit in `plan`.
        max_secs: the maximum number of seconds, from the call to its return; by default 600 live,
            and in `plan` 60, or no limit with `max_trials`.
        seed: the seed of all random numbers.
        log_dir: directory for the log; None for a new temporary one.
        report: a file (.html) for the page about the search, which is written if anything was
            measured; None for none. Needs `tf_placer[report]`.
        tensorboard: a directory for runs of TensorBoard, `original` and `found`: the graph by
            device and computing time, scalars, and pictures if the costs of operations are known;
            None for none.
        session_config: the configuration of the user's sessions; None for that of the machine.
        checkpoint: initial values for the variables of a graph: a checkpoint, a directory whose
            latest checkpoint is used, or a session that has run; None to run the initializers.
        workers: address of the workers, which measure trials in parallel, each on a machine of its
            own with devices like those of `machine`: "ray" for workers that are started on this
            computer, "auto" for the Ray cluster that runs here, "ray://HOST:PORT" for one
            elsewhere; None for this computer, one trial at a time. Needs `tf_placer[ray]`.
        num_workers: the maximum number of workers; None for one on this computer, and for as many
            as a cluster has room for.
        controllers: the number of processes of a learned placer that sample placements and share
            one set of weights, each of which waits for its own placements only; None for the search
            process itself. Needs workers.
        stop_at_gap: the search ends once the best step is at most this share above the lower
            bound, such as 0.05; None to use the whole budget. The bound of a live search is
            simulated, and known only if the costs of operations are.
        objective: "time" for the shortest step; "fit" for any step that fits the memory: the search
            ends with the first placement that runs, or with an original that does.
        max_memory: limits on the memory that operations may take, by device: a number of bytes or
            a size such as "4GB". A device is given by its name or a part of it: "GPU:0", "task:1",
            or "GPU" for all GPUs. Workers on this computer and GPUs of sessions get no more in
            trials; other devices are limited in simulation only.
        headroom: the share of the memory of each device that stays free, such as 0.1.
        answers: the store of finished answers: "default" for the one in the user's cache, or a
            directory; None for none. A step that was answered before on the same machine is not
            searched again, even if its operations have other names; a new answer is kept.
        require_answer: whether a SearchError is raised, instead of a search begun, if the store has
            no answer; it uses the default store unless `answers` names another one.
        pin: devices by pattern of names, such as {"embedding/*": "/CPU:0"}: no placement puts the
            operations of the step that match it anywhere else. A pattern is a glob for a whole
            name, whose star stands for slashes, too; or "re:" and a regular expression. The device
            "/GPU:*" is any GPU for what has a kernel there, and leaves the CPU only the rest.
        keep_together: patterns, or lists of patterns; the operations that match an item share one
            device in all placements.
        protocol: the measuring protocol of a trial: "turns", in which a placement takes turns with
            the original; or that of a paper, in which it is alone in a session: "colocrl" (10
            steps, the first is dropped), "post" (11, the first) or "eagle" (15, the first 5).

    Raises:
        ImportError: the placer has options and needs TensorFlow, which is not installed, or workers
            are requested and Ray is not installed.
        MachineError: the machine is invalid.
        ValueError: a setting has the wrong type or is out of range, or the placer or option does
            not exist.
    """

    machine: str | Machine | None = None
    placer: Any = AUTO
    placer_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    max_trials: int = _DefaultTrials(150)
    max_secs: float = _DefaultSecs(600.0)
    seed: int = 0
    log_dir: str | os.PathLike[str] | None = None
    report: str | os.PathLike[str] | None = None
    tensorboard: str | os.PathLike[str] | None = None
    session_config: tf.compat.v1.ConfigProto | None = None
    checkpoint: Any = None
    workers: str | None = None
    num_workers: int | None = None
    controllers: int | None = None
    stop_at_gap: float | None = None
    objective: str = "time"
    max_memory: Mapping[str, int | str] | None = None
    headroom: float = 0.0
    answers: str | os.PathLike[str] | None = None
    require_answer: bool = False
    pin: Mapping[str, str] = dataclasses.field(default_factory=dict)
    keep_together: Sequence[str | Sequence[str]] = ()
    protocol: str = TURNS

    def __post_init__(self) -> None:
        workers = find_workers(self.workers, self.num_workers, self.controllers)
        check_machine(self.machine)
        placer = self.placer if isinstance(self.placer, str) else name_placer(self.placer)
        placer = FORMER_PLACERS.get(placer, placer)
        options = _convert_options(placer, self.placer_options)
        check_is_for_controllers(workers, placer, options)
        max_trials, max_secs = _convert_budget(self.max_trials, self.max_secs)
        seed = check_seed(self.seed)
        gap = _convert_gap(self.stop_at_gap)
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective is 'time' or 'fit', not {_describe(self.objective)}")
        if self.protocol not in PROTOCOLS:
            names = ", ".join(map(repr, PROTOCOLS[:-1]))
            raise ValueError(
                f"protocol is {names} or {PROTOCOLS[-1]!r}, not {_describe(self.protocol)}"
            )
        kind = getattr(getattr(self.session_config, "DESCRIPTOR", None), "full_name", None)
        if self.session_config is not None and kind != _CONFIG_PROTO:
            kind = type(self.session_config).__name__
            raise ValueError(f"session_config is a ConfigProto, not {kind}")
        for path, argument, kind in (
            (self.log_dir, "log_dir", "directory"),
            (self.report, "report", "file"),
            (self.tensorboard, "tensorboard", "directory"),
            (self.answers, "answers", "directory"),
        ):
            if path is not None:
                check_path(path, argument, kind)
        checked: dict[str, Any] = {
            "placer": placer,
            "placer_options": options,
            "max_trials": max_trials if self.has_max_trials else self.max_trials,
            "max_secs": max_secs if self.has_max_secs else self.max_secs,
            "stop_at_gap": gap,
            "max_memory": read_max_memory(self.max_memory) or None,
            "headroom": check_headroom(self.headroom),
            "seed": seed,
            "num_workers": None if workers is None else workers.count,
            "controllers": None if workers is None else workers.controllers,
            "pin": check_pins(self.pin),
            "keep_together": check_keep_together(self.keep_together),
        }
        if self.require_answer and self.answers is None:
            checked["answers"] = DEFAULT_ANSWERS
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def has_max_trials(self) -> bool:
        """True if the maximum number of trials was chosen, and is not that of live searches."""
        return not isinstance(self.max_trials, _DefaultTrials)

    @property
    def has_max_secs(self) -> bool:
        """True if the maximum number of seconds was chosen, and is not that of live searches."""
        return not isinstance(self.max_secs, _DefaultSecs)

    @property
    def found_machine(self) -> Machine:
        """The machine of a config whose machine was looked up."""
        assert isinstance(self.machine, Machine)
        return self.machine

    @property
    def found_session_config(self) -> tf.compat.v1.ConfigProto:
        """The configuration of sessions of a config in which it is set."""
        assert self.session_config is not None
        return self.session_config

    @property
    def is_fit(self) -> bool:
        """True if the search ends with the first step that fits."""
        return self.objective == "fit"

    @property
    def alone_protocol(self) -> MeasuringProtocol | None:
        """The protocol of placements that are alone in a session; None for turns."""
        return ALONE_PROTOCOLS.get(self.protocol)

    @property
    def memory_limits(self) -> tuple[dict[str, int], float]:
        """The limits of devices in bytes, and the headroom: arguments of `limit_devices`."""
        return read_max_memory(self.max_memory), self.headroom

    @property
    def goal(self) -> dict[str, Any]:
        """The objective and the limits of memory that differ from the defaults, as JSON values."""
        values = {
            "objective": self.objective,
            "max_memory": self.max_memory,
            "headroom": self.headroom,
        }
        defaults = {"objective": "time", "max_memory": None, "headroom": 0.0}
        return {name: value for name, value in values.items() if value != defaults[name]}

    @property
    def wanted_workers(self) -> Workers | None:
        """The workers and controllers; None if this process measures by itself."""
        if self.workers is None:
            return None
        return Workers(self.workers, self.num_workers, self.controllers or 1)

    @property
    def restrictions(self) -> Restrictions | None:
        """The pins and what is kept together, of a config whose machine was looked up.

        Raises:
            GraphError: the machine lacks a device, or has several of a name.
        """
        names = [device.name for device in self.found_machine.devices]
        return resolve_restrictions(self.pin, check_keep_together(self.keep_together), names)

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form of the settings that a resumed search must share.

        The configuration of sessions is stored elsewhere. The paths of the log, of reports and of
        answers are left out, because they may change between calls.
        """
        machine, workers = self.machine, self.wanted_workers
        # Add these only where present, so that requests of earlier versions still match.
        more: dict[str, Any] = {}
        if self.pin:
            more["pin"] = dict(self.pin)
        if self.keep_together:
            more["keep_together"] = [list(each) for each in self.keep_together]
        if self.protocol != TURNS:
            more["protocol"] = self.protocol
        return {
            "machine": machine.to_json() if isinstance(machine, Machine) else machine,
            "placer": self.placer,
            "placer_options": dict(self.placer_options),
            "max_trials": self.max_trials,
            "max_secs": self.max_secs if math.isfinite(self.max_secs) else None,
            "stop_at_gap": self.stop_at_gap,
            **self.goal,
            "seed": self.seed,
            "workers": None if workers is None else workers.to_json(),
            **more,
        }

    @classmethod
    def from_json(cls, value: Any) -> SearchConfig:
        """Makes a config from its JSON form; earlier versions wrote no workers.

        Raises:
            ImportError, ValueError: the value is no config, or a setting is invalid; see the class.
        """
        return cls(**read_settings(value))


SearchConfig.__init__ = accept_former_keywords(restore_from="checkpoint")(  # type: ignore[method-assign]
    SearchConfig.__init__
)


def override_config(config: SearchConfig, given: Mapping[str, Any]) -> SearchConfig:
    """Overrides settings by the arguments of a call.

    Raises:
        ImportError, MachineError, ValueError: see `SearchConfig`; if a placer is given beside the
            options of another one, the message says so.
    """
    placer, options = given.get("placer", config.placer), config.placer_options
    name = placer if isinstance(placer, str) else name_placer(placer)
    try:
        return dataclasses.replace(config, **given)
    except ValueError as error:
        if not options or FORMER_PLACERS.get(name, name) == config.placer:
            raise
        raise ValueError(
            f"placer={name!r} is given beside config=SearchConfig(placer={config.placer!r}, "
            f"placer_options=...), whose options ({', '.join(options)}) are those of "
            f"{config.placer!r}: leave placer= out, or write placer={name!r} and its own "
            f"placer_options into the config ({shorten_text(str(error))})"
        ) from error


def explain_unexpected_keyword(
    function: str, name: str, keywords: Iterable[str], fields: Iterable[str]
) -> str:
    """Explains that a function has no such keyword, and what to write instead if that is known.

    Args:
        function: the name of the function.
        name: the unknown keyword.
        keywords: the keywords of the function.
        fields: the fields of `SearchConfig` that the function uses.
    """
    text, fields = f"{function}() got an unexpected keyword argument {name!r}", tuple(fields)
    if name not in fields:
        return f"{text}{suggest(name, [*keywords, *fields])}"
    # Options are checked against the placer of the same config.
    more = "placer=..., " if name == "placer_options" else ""
    return f"{text}: write config=tf_placer.SearchConfig({more}{name}=...)"


def read_settings(value: Any) -> dict[str, Any]:
    """Reads the JSON form of a `SearchConfig`, and checks only the types of its entries.

    A search of the past may use a placer or workers that are not available here and now.

    Args:
        value: the value from `parse_json`; unknown entries are ignored.

    Returns:
        The arguments of `SearchConfig`.

    Raises:
        ValueError: an entry is missing or has the wrong type.
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
        "stop_at_gap": read(float | None, "stop_at_gap"),
        "objective": read(str | None, "objective") or "time",
        "max_memory": read(Mapping[str, int] | None, "max_memory"),
        "headroom": read(float | None, "headroom") or 0.0,
        "seed": read(int, "seed"),
        "workers": None if workers is None else workers.address,
        "num_workers": None if workers is None else workers.count,
        "controllers": None if workers is None else workers.controllers,
        "pin": read(Mapping[str, str] | None, "pin") or {},
        "keep_together": read(tuple[tuple[str, ...], ...] | None, "keep_together") or (),
        "protocol": read(str | None, "protocol") or TURNS,
    }


def starting_options(
    placer: str, options: Mapping[str, Any], *, is_simulated: bool
) -> Mapping[str, Any]:
    """Adds a start to the options of a learned placer that has none.

    A live search has few samples, too few to learn even a split by layer from a random policy: it
    starts at `expert`. A simulated search has thousands, and starts as in the placer's paper, so
    that its result is its own.

    Args:
        placer: the name of the placer.
        options: its settings that differ from its defaults, checked.
        is_simulated: whether trials are simulated.

    Returns:
        The options, with a start if one was added.
    """
    if is_simulated or not is_learned(placer) or "start" in options:
        return options
    return options if find_start(placer, options) is not None else {"start": "expert", **options}


def check_machine(machine: object) -> None:
    """Checks that a value is a valid machine.

    Raises:
        MachineError: the value is neither an argument of `find_machine` nor a valid `Machine`.
    """
    if machine is None or isinstance(machine, str):
        return
    if not isinstance(machine, Machine):
        raise MachineError(
            "machine is a name such as 'local:2', a tf_placer.Machine or None, not "
            f"{_describe(machine)}"
        )
    devices = machine.devices
    if machine.kind not in get_args(Kind):
        raise MachineError(f"machine {format_value(machine.spec)} is of no kind that there is")
    if not isinstance(devices, tuple) or not all(isinstance(each, Device) for each in devices):
        raise MachineError(
            f"machine {format_value(machine.spec)}: devices is not a tuple of Device"
        )
    names = [device.name for device in devices]
    for name in names:
        if names.count(name) > 1:
            raise MachineError(
                f"machine {format_value(machine.spec)} has the device {format_value(name)} twice"
            )
    if not devices:
        raise MachineError(f"machine {format_value(machine.spec)} has no devices")


def _convert_options(placer: str, options: object) -> dict[str, Any]:
    """Checks the options of a placer, and converts them.

    Raises:
        ImportError: there are options and TensorFlow is not installed.
        ValueError: the placer or option does not exist.
    """
    if not isinstance(options, Mapping):
        raise ValueError(f"placer_options map names to values, unlike {_describe(options)}")
    for name in options:
        if not isinstance(name, str):
            raise ValueError(f"a name in placer_options is a text, not {_describe(name)}")
    try:
        checked = check_options(placer, options)
    except ValueError as error:
        if placer != AUTO or "has no option" not in str(error):
            raise
        # The placer beside a config replaces that of the config, whose options were checked before.
        raise ValueError(
            f"{error}; options of another placer go with it: "
            "SearchConfig(placer=..., placer_options=...)"
        ) from error
    if find_placer(placer).needs_start and find_start_source(placer, checked) is None:
        raise ValueError(
            f"placer {placer!r} measures the placement in a file (.json), which its option 'start' "
            f"names: --placer {placer} --start best.json, or "
            "placer_options={'start': 'best.json'}"
        )
    return checked


def _convert_budget(max_trials: object, max_secs: object) -> tuple[int, float]:
    """Checks a budget, and converts it to Python's own numbers.

    Raises:
        ValueError: the budget is invalid.
    """
    if isinstance(max_trials, bool) or not isinstance(max_trials, numbers.Integral):
        raise ValueError(f"max_trials is a whole number, not {_describe(max_trials)}")
    if isinstance(max_secs, bool) or not isinstance(max_secs, numbers.Real):
        raise ValueError(f"max_secs is a number, not {_describe(max_secs)}")
    try:
        secs = float(max_secs)
    except OverflowError:  # An integer with hundreds of digits does not fit into a float.
        raise ValueError(f"max_secs is a number, not {_describe(max_secs)}") from None
    budget = Budget(int(max_trials), secs)
    return budget.max_trials, budget.max_secs


def _convert_gap(gap: object) -> float | None:
    """Checks a gap to stop at, and converts it to Python's own number.

    Raises:
        ValueError: the gap is no number, or is negative.
    """
    if gap is None:
        return None
    is_number = not isinstance(gap, bool) and isinstance(gap, numbers.Real)
    share = float(gap) if is_number else -1.0  # type: ignore[arg-type]
    if not 0.0 <= share < math.inf:
        raise ValueError(
            f"stop_at_gap is a share of the lower bound, such as 0.05, not {_describe(gap)}"
        )
    return share


def check_seed(seed: object) -> int:
    """Checks that random generators accept a seed, and converts it to an `int`.

    Raises:
        ValueError: the seed is invalid.
    """
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral):
        raise ValueError(f"seed is a whole number, not {_describe(seed)}")
    number = int(seed)
    if not 0 <= number < _SEED_LIMIT:
        wrong = "negative" if number < 0 else "2**63 or more"
        raise ValueError(f"seed must not be {wrong}, but is {format_value(number)}")
    return number


def _describe(value: object) -> str:
    try:
        text = repr(value) if isinstance(value, str | int | float | bytes | None) else ""
    except ValueError:  # Python does not print integers with thousands of digits.
        text = ""
    kind = type(value).__name__
    return text if text and len(text) <= 60 else f"a value of type {kind}"
