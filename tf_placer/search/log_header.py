"""What a search log is of, and whether a search may go on with it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
from collections.abc import Mapping
from typing import Any

from absl import logging

from tf_placer.placers import describe_placer
from tf_placer.placers.former_names import FORMER_NAMES

__all__ = [
    "HeaderFacts",
    "LogError",
    "LogMismatchError",
    "check_header",
    "noun_of",
    "package_versions",
    "search_header",
    "up_to_date",
]

# What something is of when one field of its header differs; other fields are named as they are.
_NOUNS = {
    "graph_fingerprint": "graph",
    "fetches": "step",
    "feeds": "step",
    "initializers": "step",
    "initializer_feeds": "step",
    "queue_runners": "step",
    "restored": "step",
    "grouping_fingerprint": "grouping",
    "protocol": "measuring protocol",
    "controllers": "number of controllers",
    "session_config": "session configuration",
}


# What granularities and groupers were called in the logs of earlier versions.
_FORMER_NAMES = {"heuristic": "coarse", "per_operation": "fine"}


class LogError(ValueError):
    """A file is not a search log, or not one that can be used; the message names file and line."""


class LogMismatchError(LogError):
    """The log belongs to a search for something else.

    Attributes:
        field: which field of the header differs, such as "seed" or "machine.devices[1].name".
        logged: its value in the log; None where the log has no such field.
        given: its value in the search that wants to resume; None where it has no such field.
    """

    def __init__(self, path: str, field: str, logged: Any, given: Any) -> None:
        super().__init__(
            f"a log of another {noun_of(field)}: {path} has {field} {_brief(logged)}, "
            f"this search has {_brief(given)}"
        )
        self.field = field
        self.logged = logged
        self.given = given


@dataclasses.dataclass(frozen=True)
class HeaderFacts:
    """What people are told of every header, as far as it is there.

    Attributes:
        placer: who searches.
        seed: of everything random.
        versions: of packages.
    """

    placer: str = "a search"
    seed: int | None = None
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)


def search_header(
    subject: Mapping[str, Any], placer: str, placer_options: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """Says what a search is of: what is placed, and who places it how.

    Args:
        subject: what says which problem it is, as JSON values.
        placer: name of the placer that searches.
        placer_options: its settings that are not the defaults.
        seed: of everything random.

    Returns:
        JSON values. A search may go on with a log if they are the same, versions apart.

    Raises:
        ImportError: the placer needs TensorFlow, which is not installed.
        ValueError: there is no such placer or setting.
    """
    settings = describe_placer(placer, placer_options).settings
    return {
        **subject,
        "placer": placer,
        "configuration": {setting.name: setting.value for setting in settings},
        "seed": seed,
        "versions": package_versions(),
    }


def noun_of(field: str) -> str:
    """Says what a field of a header is about, in the words of messages."""
    root = field.split(".")[0].split("[")[0]
    return _NOUNS.get(root, root)


def check_header(path: str, logged: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Compares the header of a log with that of the search that wants to go on with it.

    Other versions of packages (field "versions") are a warning, because a search may well go on
    after an upgrade.

    Args:
        path: the log, for messages.
        logged: the header in the log.
        given: the header of the search, as JSON values.

    Raises:
        LogMismatchError: another field differs, or only one header has it.
    """
    logged = up_to_date(logged)
    if "granularity" in given:
        logged.setdefault("granularity", "coarse")
    for field in [*given, *(field for field in logged if field not in given)]:
        difference = _first_difference(field, logged.get(field), given.get(field))
        if difference is None:
            continue
        if field != "versions":
            raise LogMismatchError(path, *difference)
        name, old, new = difference
        logging.warning(
            "%s goes on with other versions than it began with: %s was %s, is %s",
            *(path, name, _brief(old), _brief(new)),
        )


def up_to_date(header: Mapping[str, Any]) -> dict[str, Any]:
    """Gives the fields of a header the names and values that they have today."""
    today = dict(header)
    if "grouping" in today:
        former = today.pop("grouping")
        today["granularity"] = _FORMER_NAMES.get(former, former)
    configuration = today.get("configuration")
    if isinstance(configuration, dict):
        configuration = {
            FORMER_NAMES.get(name, name): configuration[name] for name in configuration
        }
        if "grouper" in configuration:
            former = configuration["grouper"]
            configuration["grouper"] = _FORMER_NAMES.get(former, former)
        today["configuration"] = configuration
    return today


def package_versions() -> dict[str, str]:
    """Finds the versions of packages that decide what a search does, for the field "versions"."""
    return {name: _version(name) for name in ("tensorflow", "keras", "numpy")}


def _version(package: str) -> str:
    # TensorFlow's distribution goes by several names.
    for name in (package, f"{package}-cpu", f"{package}_cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return "unknown"


def _first_difference(name: str, logged: Any, given: Any) -> tuple[str, Any, Any] | None:
    """Finds the first place where two JSON values differ, as deep down as it can be named."""
    if logged == given:
        return None
    pairs: list[tuple[str, Any, Any]] = []
    if isinstance(logged, dict) and isinstance(given, dict):
        keys = [*given, *(key for key in logged if key not in given)]
        pairs = [(f"{name}.{key}", logged.get(key), given.get(key)) for key in keys]
    elif isinstance(logged, list) and isinstance(given, list) and len(logged) == len(given):
        items = enumerate(zip(logged, given, strict=True))
        pairs = [(f"{name}[{i}]", old, new) for i, (old, new) in items]
    differences = (_first_difference(*pair) for pair in pairs)
    return next((found for found in differences if found), (name, logged, given))


def _brief(value: Any) -> str:
    if value is None:
        return "none"
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:197] + "..."
