"""The page about a search: one self-contained HTML file."""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from graph_passes.util.messages import plain_text
from tf_placer.files import write_text
from tf_placer.report.auto_table import change_rows, describe_bound, describe_gain_here, limit_rows
from tf_placer.report.compared_machine import ComparedMachine
from tf_placer.report.memory_curve import describe_memory_curve
from tf_placer.report.operation_kinds import OperationKinds, operation_kinds
from tf_placer.report.page.captions import (
    describe_comparison,
    describe_copies,
    describe_load,
    describe_memory,
    describe_pair,
    describe_placement,
    describe_search,
    describe_transfers,
    describe_work,
)
from tf_placer.report.page.drawings import comparison_svg, copy_svg, device_svg
from tf_placer.report.page.run_table import (
    compare_views,
    describe_run,
    describe_runs,
    list_run_remarks,
    make_run_table,
    name_run,
    title_page,
)
from tf_placer.report.page.run_view import RUN_NAMES, RunView, StepView
from tf_placer.report.page.tables import (
    make_comparison_rows,
    make_device_headers,
    make_device_rows,
    make_link_rows,
    make_memory_rows,
    make_operation_columns,
    omit_repeated_columns,
)
from tf_placer.report.pictures.placement_picture import (
    is_small,
    picture_note,
    placement_drawing,
    placement_svg,
)
from tf_placer.report.step_boxes import color_legends
from tf_placer.text.sentences import join_sentences
from tf_placer.text.units import format_step

__all__ = ["require_page_libraries", "write_page"]

_HERE = pathlib.Path(__file__).parent
_LIBRARIES = ("bokeh", "jinja2", "matplotlib")
_MAX_LEGEND_LAYERS = 40
# The short table of placements has the first two of all.
_MIN_COMPARED = 2
# A headline of more characters goes on with a message of TensorFlow.
_MAX_HEADLINE = 110


def require_page_libraries() -> None:
    """Checks that the libraries of a page are installed, without importing them.

    Raises:
        ImportError: a library is missing; the message says how to install it.
    """
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"a report needs {', '.join(missing)}: pip install 'tf_placer[report]'")


def write_page(
    view: RunView,
    path: str | os.PathLike[str],
    *,
    beside: Sequence[RunView] = (),
    reload_secs: float | None = None,
) -> None:
    """Writes the page about a search, or about several beside each other.

    Args:
        view: the contents of the page.
        path: the file (.html).
        beside: the contents about other searches.
        reload_secs: the time after which the page loads itself again; None for never.

    Raises:
        ImportError: a library that the page needs is not installed.
        OSError: the file cannot be written.
    """
    require_page_libraries()
    write_text(path, _render([view, *beside], reload_secs))


def _render(views: Sequence[RunView], reload_secs: float | None) -> str:
    import jinja2

    kinds = [None if view.problem is None else operation_kinds(view.problem) for view in views]
    charts = _charts(views, kinds)
    environment = jinja2.Environment(
        autoescape=True,
        finalize=_plain,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.from_string((_HERE / "page.html").read_text())
    has_table = (
        len(views) > 2
        or any(view.price_per_hour is not None for view in views)
        or (len(views) == 2 and not any(view.is_measured for view in views))
    )
    machines = compare_views(views) if has_table else []
    runs = [
        _run_values(view, of_view, number, views)
        for number, (view, of_view) in enumerate(zip(views, kinds, strict=True))
    ]
    return template.render(
        runs=runs,
        title=title_page(views),
        claim=_describe_views(views, machines),
        run_table=make_run_table(views, machines) if has_table else None,
        run_remarks=[
            line[:1].upper() + line[1:]
            for line in (list_run_remarks(views, machines) if has_table else [])
        ],
        sections=_sections(views, charts),
        charts=charts,
        has_backward=any(each is not None and each.has_backward for each in kinds),
        reload_secs=reload_secs,
        operations=_json(
            omit_repeated_columns(
                [
                    None if of_view is None else make_operation_columns(view, of_view)
                    for view, of_view in zip(views, kinds, strict=True)
                ]
            )
        ),
        legends=_json(
            [
                {}
                if view.problem is None or of_view is None
                else color_legends(view.problem, of_view, _MAX_LEGEND_LAYERS)
                for view, of_view in zip(views, kinds, strict=True)
            ]
        ),
        chart_json=_embed_charts(charts),
        bokeh_js=_bokeh_script(),
        css=(_HERE / "page.css").read_text(),
        js=(_HERE / "page.js").read_text(),
        made=datetime.datetime.now(datetime.UTC).isoformat(sep=" ", timespec="seconds"),
        version=getattr(sys.modules["tf_placer"], "__version__", ""),
    )


def _describe_views(views: Sequence[RunView], machines: Sequence[ComparedMachine]) -> str:
    """Compares the runs of a page about several; "" for one."""
    if len(views) == 2:
        return describe_pair(*views)
    return describe_runs(views, machines) if len(views) > 2 else ""


def _shorten_headline(headline: str, rest: str) -> tuple[str, str]:
    """Moves what TensorFlow says of a failure from a headline to the text below it."""
    if len(headline) <= _MAX_HEADLINE:
        return headline, rest
    # The details of the verdict come behind the second colon.
    verdict, colon, details = headline.partition(": ")
    claim, _, details = details.partition(": ")
    if not details:
        return headline, rest
    details = details[:1].upper() + details[1:]
    return f"{verdict}{colon}{claim}", join_sentences(details, rest)


def _run_values(
    view: RunView, kinds: OperationKinds | None, number: int, views: Sequence[RunView]
) -> dict[str, Any]:
    """Makes the values of the template for one of the runs of a page."""
    compared_in_all = [each for every in views for each in every.compared]
    end_secs = max((step.trace.step_secs for every in views for step in every.steps), default=0.0)
    said = {note for before in views[:number] for note in before.notes}
    limits = view.limits
    now_secs = limits.step_secs if limits else 0.0
    compared = make_comparison_rows(
        view.compared, None if limits is None else limits.lower_bound_secs
    )
    headline, _, rest = view.verdict.partition(". ")
    headline, rest = _shorten_headline(headline, rest)
    if not rest:
        headline, _, rest = view.verdict.partition(" (")
        rest = rest and f"({rest}"
    shown = {step.label for step in view.steps}
    note, pictures = _pictures(view, kinds)
    has_steps = kinds is not None and bool(view.steps)
    return {
        "number": number,
        "name": RUN_NAMES[number] if len(views) > 1 else "",
        "heading": name_run(views, number),
        "eyebrow": describe_run(views, number)
        if len(views) > 1
        else f"tf_placer · {title_page(views)}",
        "view": view,
        # The plans of one graph for one machine have notes in common.
        "notes": [note for note in view.notes if note not in said],
        "headline": headline,
        "rest": rest and f"{rest}.",
        "compared": compared,
        # The placement of the verdict, and that of the timeline, are beside the fastest.
        "shortly_compared": [
            row
            for number, row in enumerate(compared)
            if number < _MIN_COMPARED or row["is_found"] or row["interval"] or row["label"] in shown
        ],
        "has_intervals": any(row["interval"] for row in compared),
        "has_predicted": any(row["predicted"] for row in compared),
        "comparison": comparison_svg(view.compared, compared_in_all),
        "comparison_text": describe_comparison(view),
        "picture_note": note,
        "pictures": pictures,
        "steps": [_step_values(step, kinds) for step in view.steps] if kinds else [],
        "devices": device_svg(view.steps, kinds, end_secs) if kinds and has_steps else "",
        "transfers_text": describe_transfers(view.steps) if has_steps else "",
        "copies": copy_svg(view.steps),
        "copies_text": describe_copies(view.steps) if has_steps else "",
        "search_text": describe_search(view),
        "failures": [point for point in view.points if point.failure],
        "bound": limits and describe_bound(limits),
        "lower_bound": limits and format_step(limits.lower_bound_secs),
        "is_below_bound": limits is not None
        and any(secs < limits.lower_bound_secs for secs in _list_measured_secs(view)),
        "limits": list(zip(limits.limits, limit_rows(limits), strict=True)) if limits else [],
        "memory": make_memory_rows(view.memory_curve),
        "memory_text": describe_memory_curve(view.memory_curve) if view.memory_curve else "",
        "changes": change_rows(view.changes, now_secs),
        "changes_text": describe_gain_here(view.changes, now_secs, view.error),
    }


def _list_measured_secs(view: RunView) -> list[float]:
    """Lists the steps of all trials, and of the confirmation."""
    steps = [*(each.step_secs for each in view.points), *(each.step_secs for each in view.compared)]
    return [secs for secs in steps if secs is not None]


def _step_values(step: StepView, kinds: OperationKinds) -> dict[str, Any]:
    """Makes the values of the template for one step."""
    return {
        "label": step.label,
        "secs": format_step(step.trace.step_secs),
        "load_text": describe_load(step),
        "work_text": describe_work(step, kinds),
        "memory_text": describe_memory(step),
        "device_headers": make_device_headers(step, kinds),
        "devices": make_device_rows(step, kinds),
        "links": make_link_rows(step),
    }


def _plain(value: Any) -> Any:
    """Escapes control characters in a text of the page; marked HTML stays unchanged."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return plain_text(value, lines=True) if is_text else value


def _charts(views: Sequence[RunView], kinds: Sequence[OperationKinds | None]) -> dict[str, Any]:
    """Makes the interactive charts by name; None for a chart without data."""
    from tf_placer.report.page.charts import (
        choose_step_unit,
        draw_memory_chart,
        draw_memory_curve,
        draw_search_chart,
        draw_searches_chart,
        draw_timeline,
        find_senders,
        make_time_axis,
    )

    charts: dict[str, Any] = {}
    unit = choose_step_unit(views)
    for by_time, name in ((True, "search_time"), (False, "search_number")):
        beside = None
        for run, view in enumerate(views):
            beside = (
                draw_search_chart(view, by_time=by_time, beside=beside, unit_of_steps=unit)
                or beside
            )
            has_search = bool(view.points or view.best)
            charts[f"{name}_{run}"] = beside if has_search else None
    names = [name_run(views, number) for number in range(len(views))]
    charts["searches"] = draw_searches_chart(views, names, unit)
    for run, view in enumerate(views):
        charts[f"curve_{run}"] = draw_memory_curve(view.memory_curve)
    axis = make_time_axis([view.steps for view in views])
    for run, (view, of_view) in enumerate(zip(views, kinds, strict=True)):
        if of_view is None or not view.steps:
            continue
        senders = find_senders(view.steps)
        for number, step in enumerate(view.steps):
            charts[f"time_{run}_{number}"] = draw_timeline(step, axis, senders, run, number)
            charts[f"memory_{run}_{number}"] = draw_memory_chart(step, axis)
    return charts


def _embed_charts(charts: dict[str, Any]) -> str:
    """Makes the JSON form of the charts, with the element of the page for each."""
    from bokeh.document import Document
    from bokeh.embed.util import standalone_docs_json_and_render_items

    drawn = {name: chart for name, chart in charts.items() if chart is not None}
    if not drawn:
        return _json({"docs": {}, "items": []})
    document = Document()
    # Otherwise Bokeh would collect the models of all charts again after each.
    with document.models.freeze():
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


def _pictures(
    view: RunView, kinds: OperationKinds | None
) -> tuple[str, list[tuple[str, str, str, bool]]]:
    """Draws the placements.

    Returns:
        An explanation; and for each step a title, an SVG, a sentence, and whether the SVG is
        readable in a narrow window.
    """
    if kinds is None or view.problem is None or not view.steps:
        return "", []
    drawing = placement_drawing(view.problem, kinds)
    # The placement found comes first, because the page is about it.
    return picture_note(drawing, kinds), [
        (
            step.label,
            placement_svg(view.problem, kinds, drawing, step.trace.operation_devices),
            describe_placement(step),
            is_small(drawing),
        )
        for step in reversed(view.steps)
    ]


def _sections(views: Sequence[RunView], charts: dict[str, Any]) -> list[tuple[str, str]]:
    sections = [("compared", "Comparison")]
    has_steps = any(view.steps for view in views)
    if has_steps:
        sections += [("placement", "Placement"), ("time", "Timeline"), ("devices", "Devices")]
    sections.append(("candidates", "Candidates"))
    if any(charts[f"search_time_{run}"] is not None for run in range(len(views))):
        sections.append(("search", "Search"))
    if any(view.limits is not None for view in views):
        sections.append(("limits", "Limits"))
    if has_steps:
        sections.append(("operations", "Operations"))
    return [*sections, ("facts", "The run")]


def _json(value: Any) -> str:
    """Makes JSON that is safe inside of a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
