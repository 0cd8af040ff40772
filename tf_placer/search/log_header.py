"""The header of a search log, and the check that a search may resume with it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import re
from collections.abc import Mapping
from typing import Any

from absl import logging

from tf_placer.placers import describe_placer, is_learned
from tf_placer.placers.former_names import FORMER_NAMES, FORMER_PLACERS, FORMER_VALUES
from tf_placer.text.sentences import join_sentences

__all__ = [
    "HeaderFacts",
    "LogError",
    "LogMismatchError",
    "check_header",
    "continue_options",
    "find_subject",
    "format_settings",
    "package_versions",
    "search_header",
    "upgrade_header",
]

# The subjects of header fields in messages; the other fields are their own subjects.
_SUBJECTS = {
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
    "pin": "set of pins",
    "keep_together": "set of operations to keep together",
    "session_config": "session configuration",
}

# Fingerprints tell people nothing, so that messages describe the graphs instead.
_FINGERPRINTS = ("graph_fingerprint", "grouping_fingerprint")
_REMEDY = "name another log_dir, or delete this one"
_PINS_HINT = (
    "pins are by names, in which Keras counts on: for the same model, call "
    "keras.utils.clear_session() before it is built again"
)
_GROUPING_HINT = (
    "a model or function whose variables are placed already differs, too: call "
    "keras.utils.clear_session() and build it anew"
)
# The description of the type and the shape of a feed, such as "float32[32, 8]".
_FEED = re.compile(r"(?P<type>\w+)\[(?P<batch>\d+)(?P<rest>.*)\]")
# Fields for messages, which identify no search.
_DESCRIPTIVE_FIELDS = ("num_operations",)

# Former names of granularities and groupers, from logs of earlier versions.
_FORMER_NAMES = {"heuristic": "coarse", "per_operation": "fine"}


class LogError(ValueError):
    """A file that is not a usable search log; the message names file and line."""


class LogMismatchError(LogError):
    """A log that belongs to another search.

    Attributes:
        field: the header field that differs, such as "seed" or "machine.devices[1].name".
        logged: the value in the log; None if the log has no such field.
        given: the value in the search that should resume; None if it has no such field.
    """

    def __init__(
        self, path: str, field: str, logged: Any, given: Any, advice: str | None = None
    ) -> None:
        """Initializes the error.

        Args:
            path: the log.
            field: see the attribute.
            logged: see the attribute.
            given: see the attribute.
            advice: the rest of the message; by default it has the values of the field.
        """
        if advice is None:
            advice = f"{path} has {field} {_brief(logged)}, this search has {_brief(given)}"
        super().__init__(f"a log of another {find_subject(field)}: {advice}")
        self.field = field
        self.logged = logged
        self.given = given


@dataclasses.dataclass(frozen=True)
class HeaderFacts:
    """The facts of any header that are shown to people, with defaults for missing ones.

    Attributes:
        placer: the name of the placer.
        seed: the seed of all random numbers.
        versions: versions by package.
    """

    placer: str = "a search"
    seed: int | None = None
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)


def search_header(
    subject: Mapping[str, Any], placer: str, placer_options: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """Makes the header of a search log, which identifies the search.

    Args:
        subject: JSON values that identify the problem.
        placer: name of the placer.
        placer_options: its settings that differ from the defaults.
        seed: the seed of all random numbers.

    Returns:
        JSON values. A search may resume with a log if they are equal, except versions.

    Raises:
        ImportError: the placer needs TensorFlow, which is not installed.
        ValueError: the placer or setting does not exist.
    """
    settings = describe_placer(placer, placer_options).settings
    return {
        **subject,
        "placer": placer,
        "configuration": {setting.name: setting.value for setting in settings},
        "seed": seed,
        "versions": package_versions(),
    }


def format_settings(settings: Mapping[str, Any]) -> str:
    """Formats settings as `--placer_option` takes them, as "grouper=metis, num_groups=64"."""
    return ", ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in settings.items()
    )


def continue_options(
    placer: str, options: Mapping[str, Any], header: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Completes the options of a learned placer that may resume a log of an earlier version.

    Settings that are not given keep the values that the log began with, though the placer may have
    other defaults now. A log of this version has every setting, and adds none.

    Args:
        placer: name of the placer.
        options: its settings that differ from the defaults.
        header: the header of the log; None if there is no log.

    Raises:
        ImportError: the placer needs TensorFlow, which is not installed.
        ValueError: the placer or setting does not exist.
    """
    logged = None
    if header is not None and is_learned(placer):
        header = upgrade_header(header)
        logged = header.get("configuration") if header.get("placer") == placer else None
    if not isinstance(logged, dict):
        return dict(options)
    settings = {each.name: each.value for each in describe_placer(placer, options).settings}
    if settings.keys() <= logged.keys():
        return dict(options)
    former = {**FORMER_VALUES, **logged}
    kept = {name: former[name] for name in settings if name in former}
    return {name: value for name, value in kept.items() if value != settings[name]} | dict(options)


def find_subject(field: str) -> str:
    """Finds the subject of a header field, for messages."""
    root = field.split(".")[0].split("[")[0]
    return _SUBJECTS.get(root, root)


def check_header(path: str, logged: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Compares the header of a log with the header of the search that should resume with it.

    Other versions of packages (field "versions") are only a warning, because a search may resume
    after an upgrade. The field "num_operations" is for messages alone: earlier logs lack it.

    Args:
        path: the log, for messages.
        logged: the header in the log.
        given: the header of the search, as JSON values.

    Raises:
        LogMismatchError: another field differs, or only one header has it.
    """
    logged = upgrade_header(logged)
    if "granularity" in given:
        logged.setdefault("granularity", "coarse")
    if isinstance(logged.get("configuration"), dict):
        names = FORMER_VALUES.keys() & given.get("configuration", {}).keys()
        logged["configuration"] = {
            **{name: FORMER_VALUES[name] for name in names},
            **logged["configuration"],
        }
    for field in [*(field for field in logged if field not in given), *given]:
        if field in _DESCRIPTIVE_FIELDS:
            continue
        difference = _first_difference(field, logged.get(field), given.get(field))
        if difference is None:
            continue
        if field != "versions":
            raise LogMismatchError(path, *difference, _advise(path, field, logged, given))
        name, old, new = difference
        logging.warning(
            "%s resumes with other package versions than it began with: %s was %s, is %s",
            *(path, name, _brief(old), _brief(new)),
        )


def _advise(
    path: str, field: str, logged: Mapping[str, Any], given: Mapping[str, Any]
) -> str | None:
    """Advises about a log of another graph, batch or problem, and names what differs.

    Fingerprints and digests of files say nothing to people.

    Returns:
        Sentences, the last without a full stop; None if the values of the field say it all.
    """
    if field == "problem":
        difference = f"the log {path} is of another graph, batch or machine, or of other costs"
        return join_sentences(_REMEDY, difference)
    batch_sizes = _find_batch_sizes(logged, given)
    if field not in _FINGERPRINTS and (field != "feeds" or batch_sizes is None):
        return None
    facts = [] if batch_sizes is None else [[f"batch size {size}" for size in batch_sizes]]
    counts = [header.get("num_operations") for header in (logged, given)]
    if None not in counts and counts[0] != counts[1]:
        facts.append([f"{count:,} operations" for count in counts])
    if facts:
        old, new = (" and ".join(pair) for pair in zip(*facts, strict=True))
        difference = f"the log {path} has {old}, this search has {new}"
    elif field == "grouping_fingerprint":
        difference = f"the log {path} has other devices in the graph, or other groups"
    else:
        difference = f"the log {path} is of another model, optimizer or batch"
    hint = None
    if field == "grouping_fingerprint":
        hint = _GROUPING_HINT
    elif not facts and (given.get("pin") or given.get("keep_together")):
        hint = _PINS_HINT
    return join_sentences(_REMEDY, difference, hint)


def _find_batch_sizes(
    logged: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[int, int] | None:
    """Finds the batch sizes of two headers whose inputs differ in nothing else.

    Returns:
        The size in the log and the size in the search; None if they are not all that differs.
    """
    old_feeds, new_feeds = logged.get("feeds"), given.get("feeds")
    if not isinstance(old_feeds, dict) or not isinstance(new_feeds, dict):
        return None
    if old_feeds.keys() != new_feeds.keys():
        return None
    sizes = set()
    for name, old in old_feeds.items():
        old_match, new_match = _FEED.fullmatch(old), _FEED.fullmatch(new_feeds[name])
        if old == new_feeds[name]:
            continue
        if old_match is None or new_match is None or old_match["rest"] != new_match["rest"]:
            return None
        if old_match["type"] != new_match["type"]:
            return None
        sizes.add((int(old_match["batch"]), int(new_match["batch"])))
    return sizes.pop() if len(sizes) == 1 else None


def upgrade_header(header: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a header of an earlier version to the current names and values of its fields."""
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
    if today.get("placer") in FORMER_PLACERS:
        today["placer"] = FORMER_PLACERS[today["placer"]]
    return today


def package_versions() -> dict[str, str]:
    """Finds the versions of packages that affect a search, for the field "versions"."""
    return {name: _version(name) for name in ("tensorflow", "keras", "numpy")}


def _version(package: str) -> str:
    # TensorFlow is distributed under several names.
    for name in (package, f"{package}-cpu", f"{package}_cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return "unknown"


def _first_difference(name: str, logged: Any, given: Any) -> tuple[str, Any, Any] | None:
    """Finds the innermost name and values of the first difference between two JSON values."""
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
