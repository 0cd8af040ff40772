"""The configuration of a placer after options: its components and all settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from graph_passes.util.messages import quote
from graph_passes.util.suggestions import suggest
from tf_placer.placers.components import COMPONENTS, SHARED_COMPONENTS, Component
from tf_placer.placers.former_names import rename_former
from tf_placer.placers.options import Setting, config_from_options, list_settings
from tf_placer.placers.presets import Preset

__all__ = ["ResolvedConfig", "resolve"]

_SHARED_BY_ALL = {"reward", "start"}


@dataclasses.dataclass(frozen=True)
class ResolvedConfig:
    """The components of a placer and their settings.

    Attributes:
        components: the name of the component of each kind: "grouper", "policy" and "algorithm";
            empty for a placer that does not learn.
        configs: the configurations of the components that have settings, shared ones included, by
            the name of the component. A placer that does not learn is its own component.
    """

    components: Mapping[str, str]
    configs: Mapping[str, Any]

    @property
    def settings(self) -> list[Setting]:
        """All settings, the choices of components first."""
        settings = [
            Setting(kind, name, f"one of {', '.join(_list_choices(kind))}", kind)
            for kind, name in self.components.items()
        ]
        for component, config in self.configs.items():
            settings += list_settings(component, config)
        return settings


def resolve(preset: Preset, options: Mapping[str, object] | None, *, owner: str) -> ResolvedConfig:
    """Applies options to a preset.

    Args:
        preset: the configuration without options.
        options: names of components by kind, and settings of the components in use, which override
            those of the preset. Strings, as from a command line, are converted.
        owner: the owner of the options, for messages.

    Raises:
        ValueError: a component, setting or value does not exist.
    """
    overrides = rename_former(options or {}, owner=owner)
    chosen = {
        kind: str(overrides.pop(kind, getattr(preset, kind)))
        for kind in ("grouper", "policy", "algorithm")
    }
    components = {
        name: component
        for kind, choice in chosen.items()
        for name, component in _list_components(kind, choice)
    }
    shared = {name for each in components.values() for name in each.shares} | _SHARED_BY_ALL
    components |= {name: each for name, each in SHARED_COMPONENTS.items() if name in shared}
    types = {name: component.config_type() for name, component in components.items()}
    owners = {
        field.name: name
        for name, config_type in types.items()
        if config_type is not None
        for field in dataclasses.fields(config_type)
    }
    for option in overrides:
        if option not in owners:
            known = [*chosen, *owners]
            raise ValueError(
                f"{owner} has no option {quote(option)}{suggest(option, known)}; its options are: "
                f"{', '.join(sorted(known))}"
            )
    # Drop the preset's settings of components that options have replaced.
    kept = {name: value for name, value in preset.settings.items() if name in owners}
    values = kept | overrides
    configs = {}
    for name, config_type in types.items():
        own = {option: value for option, value in values.items() if owners[option] == name}
        config = config_from_options(config_type, own, owner=owner)
        if config is not None:
            configs[name] = config
    return ResolvedConfig(chosen, configs)


def _list_choices(kind: str) -> Iterator[str]:
    yield from COMPONENTS[kind]
    if kind == "algorithm":
        yield "ppo_kl+ce"
        yield "ppo+ce_gradient"


def _list_components(kind: str, choice: str) -> Iterator[tuple[str, Component]]:
    """Yields the components of a choice: one, or two algorithms."""
    if choice not in _list_choices(kind):
        known = list(_list_choices(kind))
        raise ValueError(
            f"no {kind} {quote(choice)}{suggest(choice, known)}; there are: {', '.join(known)}"
        )
    for name in choice.split("+"):
        yield name, COMPONENTS[kind][name]
