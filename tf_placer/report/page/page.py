"""The page about a search: one HTML file that needs nothing else."""

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
from tf_placer.report.auto_table import bound_by, change_rows, limit_rows
from tf_placer.report.operation_kinds import OperationKinds, operation_kinds
from tf_placer.report.page.drawings import comparison_svg, copy_svg, device_svg
from tf_placer.report.page.run_view import RunView
from tf_placer.report.page.tables import compared_rows, device_rows, operation_columns
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
# Of more layers than this a legend is no help.
_MOST_LAYERS = 40


def require_page_libraries() -> None:
    """Makes sure that everything a page needs is installed, without importing it.

    Raises:
        ImportError: it is not; the message says how to install it.
    """
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"a report needs {', '.join(missing)}: pip install 'tf_placer[report]'")


def write_page(view: RunView, path: str | os.PathLike[str]) -> None:
    """Writes the page about a search.

    Args:
        view: what it shows.
        path: the file (.html).

    Raises:
        ImportError: what it needs is not installed.
        OSError: it cannot be written.
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
    compared = compared_rows(view.compared, bound_secs)
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
        devices=[] if kinds is None else [device_rows(step, kinds) for step in view.steps],
        search_note=_search_note(view),
        failures=[point for point in view.points if point.failure],
        bound="" if view.limits is None else bound_by(view.limits),
        lower_bound="" if view.limits is None else format_step(view.limits.lower_bound_secs),
        limits=[]
        if view.limits is None
        else list(zip(view.limits.limits, limit_rows(view.limits), strict=True)),
        changes=change_rows(view.changes, view.limits.step_secs if view.limits else 0.0),
        operations=_json(None if kinds is None else operation_columns(view, kinds)),
        legends=_json(
            {}
            if view.problem is None or kinds is None
            else color_legends(view.problem, kinds, _MOST_LAYERS)
        ),
        chart_json=_embedded(charts),
        bokeh_js=_bokeh_script(),
        css=(_HERE / "page.css").read_text(),
        js=(_HERE / "page.js").read_text(),
        made=datetime.datetime.now(datetime.UTC).isoformat(sep=" ", timespec="seconds"),
        version=getattr(sys.modules["tf_placer"], "__version__", ""),
    )


def _plain(value: Any) -> Any:
    """Makes a value of the page safe to look at; HTML, which is marked, stays as it is."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return plain_text(value, lines=True) if is_text else value


def _charts(view: RunView, kinds: OperationKinds | None) -> dict[str, Any]:
    """Makes the charts by the names of their places; None where there is nothing to draw."""
    from tf_placer.report.page.charts import memory_chart, search_chart, time_line

    charts: dict[str, Any] = {
        "search_time": search_chart(view, by_time=True),
        "search_number": search_chart(view, by_time=False),
    }
    if kinds is None or not view.steps:
        return charts
    end_secs = max(step.trace.step_secs for step in view.steps) or 1.0
    x_range = None
    for number, step in enumerate(view.steps):
        line = time_line(step, kinds, end_secs, x_range)
        x_range = line.x_range
        charts[f"time_{number}"] = line
    for number, step in enumerate(view.steps):
        charts[f"memory_{number}"] = memory_chart(step, end_secs, x_range)
    return charts


def _drawings(view: RunView, kinds: OperationKinds | None) -> dict[str, str]:
    """Draws the charts that need no script, by the names of their places."""
    return {
        "comparison": comparison_svg(view.compared),
        "devices": device_svg(view.steps, kinds) if kinds is not None and view.steps else "",
        "copies": copy_svg(view.steps),
    }


def _embedded(charts: dict[str, Any]) -> str:
    """Makes the JSON form of the charts, with where each goes."""
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
    """Draws where each part went: how to read it, and a title and an SVG for each step."""
    if kinds is None or view.problem is None or not view.steps:
        return "", []
    drawing = placement_drawing(view.problem, kinds)
    # What was found comes first: it is what the page is about.
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
    sections = [("compared", "Original and found")]
    if has_pictures:
        sections.append(("placement", "Placement"))
    if view.steps:
        sections += [("time", "Step in time"), ("devices", "Devices")]
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
        return "The placer shows only the best so far."
    shown = f"{len(view.points):,} {noun}, {failed:,} of them failed."
    return f"{shown} Click a name in the legend to hide it."


def _json(value: Any) -> str:
    """Makes JSON that may stand in a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
