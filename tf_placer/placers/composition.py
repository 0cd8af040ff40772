"""The parts of a placer that learns, and the settings of any, after what the user asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from graph_passes.util.messages import quoted
from tf_placer.placers.former_names import rename_former
from tf_placer.placers.options import Setting, config_from_options, settings_of, suggest
from tf_placer.placers.parts import PARTS, SHARED_PARTS, Part
from tf_placer.placers.systems import System

__all__ = ["Composition", "resolve"]


@dataclasses.dataclass(frozen=True)
class Composition:
    """What a placer is made of.

    Attributes:
        parts: the name of the part of each kind: "grouper", "policy" and "algorithm"; empty for one
            that does not learn.
        configs: the settings of each part that has some, by its name; those of shared parts, too.
            One that does not learn is its own part.
    """

    parts: Mapping[str, str]
    configs: Mapping[str, Any]

    @property
    def settings(self) -> list[Setting]:
        """All settings, the parts first."""
        found = [
            Setting(kind, name, f"one of {', '.join(_choices(kind))}", kind)
            for kind, name in self.parts.items()
        ]
        for part, config in self.configs.items():
            found += settings_of(part, config)
        return found


def resolve(system: System, options: Mapping[str, object] | None, *, owner: str) -> Composition:
    """Takes the parts of a system or those that the options name, and sets their settings.

    Args:
        system: what there is without options.
        options: what shall differ: the names of parts by kind, and settings of the parts that are
            used. Strings, as they come from a command line, are converted.
        owner: whose options these are, for messages.

    Raises:
        ValueError: there is no such part, or none of the parts has such a setting or value.
    """
    wanted = rename_former(options or {}, owner=owner)
    parts = {
        kind: str(wanted.pop(kind, getattr(system, kind)))
        for kind in ("grouper", "policy", "algorithm")
    }
    used = {name: part for kind, named in parts.items() for name, part in _parts(kind, named)}
    shares = {share for part in used.values() for share in part.shares} | {"start", "signal"}
    used |= {name: part for name, part in SHARED_PARTS.items() if name in shares}
    types = {name: part.config_type() for name, part in used.items()}
    owners = {
        field.name: name
        for name, config_type in types.items()
        if config_type is not None
        for field in dataclasses.fields(config_type)
    }
    for option in wanted:
        if option not in owners:
            known = [*parts, *owners]
            raise ValueError(
                f"{owner} has no option {quote(option)}{suggest(option, known)}; its options are: "
                f"{', '.join(sorted(known))}"
            )
    # Settings of a part that the options replaced have no meaning any more.
    values = {name: value for name, value in system.settings.items() if name in owners} | wanted
    configs = {}
    for name, config_type in types.items():
        own = {option: value for option, value in values.items() if owners[option] == name}
        config = config_from_options(config_type, own, owner=owner)
        if config is not None:
            configs[name] = config
    return Composition(parts, configs)


def _choices(kind: str) -> Iterator[str]:
    yield from PARTS[kind]
    if kind == "algorithm":
        yield "ppo_kl+ce"
        yield "ppo+ce_gradient"


def _parts(kind: str, name: str) -> Iterator[tuple[str, Part]]:
    """Yields the parts that a name stands for: one, or two algorithms."""
    if name not in _choices(kind):
        known = list(_choices(kind))
        raise ValueError(
            f"no {kind} {quote(name)}{suggest(name, known)}; there are: {', '.join(known)}"
        )
    for single in name.split("+"):
        yield single, PARTS[kind][single]
