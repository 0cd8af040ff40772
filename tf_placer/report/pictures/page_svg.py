"""Matplotlib figures as SVG inside a page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

__all__ = ["page_svg"]

# A placeholder for the color of the text of the page.
_INK = "#123456"
_INKED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")


def page_svg(make_figure: Callable[[], Any]) -> str:
    """Draws a figure whose texts and lines have the color of the text of the page.

    Args:
        make_figure: makes the matplotlib figure.
    """
    import matplotlib

    content = io.StringIO()
    with matplotlib.rc_context(dict.fromkeys(_INKED, _INK)):
        make_figure().savefig(content, format="svg", transparent=True, metadata={"Date": None})
    svg = content.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    # Metadata would only enlarge the page.
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Remove unused ids, which several figures of a page would share.
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    return re.sub(r'(<\w+) id="([^"]*)"', lambda tag: tag[tag[2] not in used], svg)
