"""Tables of the placers, their components and settings, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tf_placer.errors import require_tensorflow
from tf_placer.placers import PLACERS, PlacerEntry, describe_placer, find_placer
from tf_placer.placers.components import COMPONENTS, SHARED_COMPONENTS
from tf_placer.placers.options import Setting, list_settings
from tf_placer.placers.presets import PAPER_PRESETS
from tf_placer.text.markdown import markdown_table
from tf_placer.text.table import table, terminal_width

__all__ = ["placer_table", "placer_values", "placers_page", "placers_table"]


def placers_table(placers: Mapping[str, PlacerEntry] = PLACERS) -> str:
    """Formats placers, a line each; needs no TensorFlow."""
    return table(_HEADERS, _placer_rows(placers), width=terminal_width(), optional=_OPTIONAL)


# Columns to leave out of short lines, the least important first.
_OPTIONAL = ("from", "grouper", "costs", "algorithm")
_HEADERS = ["placer", "grouper", "policy", "algorithm", "costs", "from", "what it is"]


def placer_values(name: str) -> dict[str, Any]:
    """Makes the JSON form of a placer, without its settings."""
    placer = find_placer(name)
    return {
        "name": name,
        "summary": placer.summary,
        "reference": placer.reference,
        "needs_costs": placer.needs_problem,
        **{kind: getattr(placer.preset, kind, None) for kind in ("grouper", "policy", "algorithm")},
        "settings": None,
    }


def _placer_rows(placers: Mapping[str, PlacerEntry]) -> list[list[str | None]]:
    rows: list[list[str | None]] = []
    for name, placer in placers.items():
        components: list[str | None] = [None, None, None]
        if placer.preset is not None:
            components = [placer.preset.grouper, placer.preset.policy, placer.preset.algorithm]
        costs = "needed" if placer.needs_problem else None
        rows.append([name, *components, costs, placer.reference, placer.summary])
    return rows


def placers_page() -> str:
    """Makes the page of the manual that lists all placers, components and settings, as Markdown.

    Raises:
        ImportError: TensorFlow is not installed.
    """
    require_tensorflow()
    lines = [
        "# Settings",
        "",
        "This page lists every placer, the components of learned ones, and all settings.",
        "`python -m tf_placer placers --markdown` prints it; [Placers](placers.md) explains it.",
        "Former names of options, such as `signal` for `reward`, still work.",
        "",
        "## All placers",
        "",
        _table(_HEADERS, _placer_rows(PLACERS)),
    ]
    for name, placer in PLACERS.items():
        if placer.config is not None:
            lines += ["", f"## `{name}`", "", _settings(describe_placer(name).settings)]
    rows = [
        [
            name,
            ", ".join(
                f"`{key}={_format_setting(value)}`" for key, value in preset.settings.items()
            ),
        ]
        for name, placer in PLACERS.items()
        if (preset := placer.preset) is not None
    ]
    lines += ["", "## Settings of learned placers that differ from those of their components", ""]
    lines.append(_table(["placer", "settings"], rows))
    rows = [
        [
            name,
            ", ".join(
                f"`{each.name}={_format_setting(each.value)}`"
                for each in describe_placer(name).settings
                if each.name in preset.printed
            ),
        ]
        for name, preset in PAPER_PRESETS.items()
        if preset.printed
    ]
    lines += ["", "## Settings that the papers print", ""]
    lines += ["All other settings of these placers are variants: the papers do not say them.", ""]
    lines.append(_table(["placer", "settings"], rows))
    kinds = {**COMPONENTS, "shared component": SHARED_COMPONENTS}
    for kind, components in kinds.items():
        for name, component in components.items():
            lines += ["", f"## {kind.capitalize()} `{name}`", "", _sentence(component.summary)]
            config_type = component.config_type()
            if config_type is not None:
                lines += ["", _settings(list_settings(name, config_type()))]
    return "\n".join(lines)


def _settings(settings: Sequence[Setting]) -> str:
    rows = [[setting.name, _format_setting(setting.value), setting.help] for setting in settings]
    return _table(["setting", "default", "meaning"], rows)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _table(headers: Sequence[str], rows: Sequence[Sequence[str | None]]) -> str:
    return markdown_table(headers, [[cell or "" for cell in row] for row in rows])


def placer_table(name: str, options: Mapping[str, str] | None = None) -> str:
    """Formats the settings of one placer and its components, with their values and meanings.

    Args:
        name: the name of the placer.
        options: settings that differ from the defaults; another component has other settings.

    Raises:
        ImportError: the placer needs TensorFlow, which is not installed.
        ValueError: there is no such placer, option or value.
    """
    try:
        described = describe_placer(name, options)
    except ImportError:
        require_tensorflow()
        raise
    placer = find_placer(name)
    lines = [f"{name}: {placer.summary} ({placer.reference})"]
    if placer.needs_problem:
        lines.append("needs the costs of the operations: `optimize` profiles the graph first")
    if not described.settings:
        return "\n".join([*lines, "no settings"])
    rows = [
        [setting.name, _format_setting(setting.value), setting.part, setting.help]
        for setting in described.settings
    ]
    settings = table(["setting", "value", "component", "meaning"], rows, width=terminal_width())
    return "\n".join([*lines, "", settings])


def _format_setting(value: object) -> str:
    """Formats a value in the form that --placer_option takes."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)
