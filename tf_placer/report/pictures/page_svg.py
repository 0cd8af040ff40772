"""Figures of matplotlib as SVG inside a page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

__all__ = ["page_svg"]

# Stands for the color of the text around.
_INK = "#123456"
_INKED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")


def page_svg(make_figure: Callable[[], Any]) -> str:
    """Draws a figure whose texts and lines have the color of the text around it.

    Args:
        make_figure: makes the figure of matplotlib.
    """
    import matplotlib

    content = io.StringIO()
    with matplotlib.rc_context(dict.fromkeys(_INKED, _INK)):
        make_figure().savefig(content, format="svg", transparent=True, metadata={"Date": None})
    svg = content.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    # Nothing uses metadata.
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Ids that nothing refers to would be the same in every figure of a page.
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    return re.sub(r'(<\w+) id="([^"]*)"', lambda tag: tag[tag[2] not in used], svg)
