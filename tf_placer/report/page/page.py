"""The page about a search: one self-contained HTML file."""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import pathlib
import sys
from typing import Any

from graph_passes.util.messages import plain_text
from tf_placer.files import write_text
from tf_placer.report.auto_table import change_rows, describe_bound, limit_rows
from tf_placer.report.operation_kinds import OperationKinds, operation_kinds
from tf_placer.report.page.drawings import comparison_svg, copy_svg, device_svg
from tf_placer.report.page.run_view import RunView
from tf_placer.report.page.tables import (
    make_comparison_rows,
    make_device_rows,
    make_operation_columns,
)
from tf_placer.report.pictures.placement_picture import (
    picture_note,
    placement_drawing,
    placement_svg,
)
from tf_placer.report.step_boxes import color_legends
from tf_placer.text.units import format_step

__all__ = ["require_page_libraries", "write_page"]

_HERE = pathlib.Path(__file__).parent
_LIBRARIES = ("bokeh", "jinja2", "matplotlib")
_MAX_LEGEND_LAYERS = 40


def require_page_libraries() -> None:
    """Checks that the libraries of a page are installed, without importing them.

    Raises:
        ImportError: a library is missing; the message says how to install it.
    """
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"a report needs {', '.join(missing)}: pip install 'tf_placer[report]'")


def write_page(view: RunView, path: str | os.PathLike[str]) -> None:
    """Writes the page about a search.

    Args:
        view: the contents of the page.
        path: the file (.html).

    Raises:
        ImportError: a library that the page needs is not installed.
        OSError: the file cannot be written.
    """
    require_page_libraries()
    write_text(path, _render(view))


def _render(view: RunView) -> str:
    import jinja2

    kinds = None if view.problem is None else operation_kinds(view.problem)
    charts = _charts(view, kinds)
    note, pictures = _pictures(view, kinds)
    environment = jinja2.Environment(
        autoescape=True,
        finalize=_plain,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.from_string((_HERE / "page.html").read_text())
    bound_secs = None if view.limits is None else view.limits.lower_bound_secs
    compared = make_comparison_rows(view.compared, bound_secs)
    headline, _, rest = view.verdict.partition(". ")
    if not rest:
        headline, _, rest = view.verdict.partition(" (")
        rest = rest and f"({rest}"
    return template.render(
        view=view,
        headline=headline,
        rest=rest and f"{rest}.",
        sections=_sections(view, charts, has_pictures=bool(pictures)),
        charts=charts,
        drawings=_drawings(view, kinds),
        compared=compared,
        found_rows=[row for row in compared[2:] if row["is_found"]],
        has_predicted=any(row["predicted"] for row in compared),
        pictures=pictures,
        picture_note=note,
        step_texts=[format_step(step.trace.step_secs) for step in view.steps],
        devices=[] if kinds is None else [make_device_rows(step, kinds) for step in view.steps],
        search_note=_search_note(view),
        failures=[point for point in view.points if point.failure],
        bound="" if view.limits is None else describe_bound(view.limits),
        lower_bound="" if view.limits is None else format_step(view.limits.lower_bound_secs),
        limits=[]
        if view.limits is None
        else list(zip(view.limits.limits, limit_rows(view.limits), strict=True)),
        changes=change_rows(view.changes, view.limits.step_secs if view.limits else 0.0),
        operations=_json(None if kinds is None else make_operation_columns(view, kinds)),
        legends=_json(
            {}
            if view.problem is None or kinds is None
            else color_legends(view.problem, kinds, _MAX_LEGEND_LAYERS)
        ),
        chart_json=_embed_charts(charts),
        bokeh_js=_bokeh_script(),
        css=(_HERE / "page.css").read_text(),
        js=(_HERE / "page.js").read_text(),
        made=datetime.datetime.now(datetime.UTC).isoformat(sep=" ", timespec="seconds"),
        version=getattr(sys.modules["tf_placer"], "__version__", ""),
    )


def _plain(value: Any) -> Any:
    """Escapes control characters in a text of the page; marked HTML stays unchanged."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return plain_text(value, lines=True) if is_text else value


def _charts(view: RunView, kinds: OperationKinds | None) -> dict[str, Any]:
    """Makes the interactive charts by name; None for a chart without data."""
    from tf_placer.report.page.charts import draw_memory_chart, draw_search_chart, draw_timeline

    charts: dict[str, Any] = {
        "search_time": draw_search_chart(view, by_time=True),
        "search_number": draw_search_chart(view, by_time=False),
    }
    if kinds is None or not view.steps:
        return charts
    end_secs = max(step.trace.step_secs for step in view.steps) or 1.0
    x_range = None
    for number, step in enumerate(view.steps):
        line = draw_timeline(step, kinds, end_secs, x_range)
        x_range = line.x_range
        charts[f"time_{number}"] = line
    for number, step in enumerate(view.steps):
        charts[f"memory_{number}"] = draw_memory_chart(step, end_secs, x_range)
    return charts


def _drawings(view: RunView, kinds: OperationKinds | None) -> dict[str, str]:
    """Draws the static charts by name."""
    return {
        "comparison": comparison_svg(view.compared),
        "devices": device_svg(view.steps, kinds) if kinds is not None and view.steps else "",
        "copies": copy_svg(view.steps),
    }


def _embed_charts(charts: dict[str, Any]) -> str:
    """Makes the JSON form of the charts, with the element of the page for each."""
    from bokeh.document import Document
    from bokeh.embed.util import standalone_docs_json_and_render_items

    drawn = {name: chart for name, chart in charts.items() if chart is not None}
    if not drawn:
        return _json({"docs": {}, "items": []})
    document = Document()
    for chart in drawn.values():
        document.add_root(chart)
    docs, [item] = standalone_docs_json_and_render_items(list(drawn.values()))
    places = {chart.id: f"chart-{name.replace('_', '-')}" for name, chart in drawn.items()}
    value = item.to_json()
    value["roots"] = places
    value["root_ids"] = list(places)
    return _json({"docs": docs, "items": [value]})


def _bokeh_script() -> str:
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh"], log_level="warn").js_raw)


def _pictures(view: RunView, kinds: OperationKinds | None) -> tuple[str, list[tuple[str, str]]]:
    """Draws the placements: an explanation, and a title and an SVG for each step."""
    if kinds is None or view.problem is None or not view.steps:
        return "", []
    drawing = placement_drawing(view.problem, kinds)
    # The placement found comes first, because the page is about it.
    return picture_note(drawing), [
        (
            step.label,
            placement_svg(view.problem, kinds, drawing, step.trace.operation_devices),
        )
        for step in reversed(view.steps)
    ]


def _sections(
    view: RunView, charts: dict[str, Any], *, has_pictures: bool
) -> list[tuple[str, str]]:
    sections = [("compared", "Comparison")]
    if has_pictures:
        sections.append(("placement", "Placement"))
    if view.steps:
        sections += [("time", "Timeline"), ("devices", "Devices")]
    sections.append(("candidates", "Candidates"))
    if charts["search_time"] is not None:
        sections.append(("search", "Search"))
    if view.limits is not None:
        sections.append(("limits", "Limits"))
    if view.steps:
        sections.append(("operations", "Operations"))
    return [*sections, ("facts", "The run")]


def _search_note(view: RunView) -> str:
    noun = "trials" if view.is_measured else "samples"
    failed = sum(bool(point.failure) for point in view.points)
    if not view.points:
        return "The placer reports only the best so far."
    shown = f"{len(view.points):,} {noun}, {failed:,} of them failed."
    return f"{shown} Click a name in the legend to hide it."


def _json(value: Any) -> str:
    """Makes JSON that is safe inside of a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
