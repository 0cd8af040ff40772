"""Short names of devices and operations for tables."""

from __future__ import annotations

from collections.abc import Sequence

from graph_passes.util.messages import plain_text

__all__ = ["device_labels", "shorten_middle"]

_WIDTH = 20


def device_labels(names: Sequence[str]) -> dict[str, str]:
    """Shortens names of devices: "task:1/GPU:0" if all are "/job:a/replica:0/task:…/device:…"."""
    num_common = 0
    for parts in zip(*(name.split("/")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        num_common += 1
    short = {name: "/".join(name.split("/")[num_common:]) for name in names}
    return {
        name: shorten_middle(text.replace("device:", ""), _WIDTH) for name, text in short.items()
    }


def shorten_middle(text: str, width: int) -> str:
    """Puts a text on one line and replaces its middle if it is too long."""
    text = plain_text(" ".join(text.split()))
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
