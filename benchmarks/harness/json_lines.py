"""Files with a line of JSON for each case that is done, so that what makes them can be stopped."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["append_answers", "read_answers"]


def read_answers(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Reads what is done; a line that a kill tore off is dropped from the file."""
    file = pathlib.Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    content = file.read_bytes() if file.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        file.write_bytes(whole)
    return [json.loads(line) for line in whole.splitlines()]


def append_answers(path: str | os.PathLike[str], answers: Sequence[Mapping[str, Any]]) -> None:
    """Adds cases that are done: all of them, or none if a kill comes between."""
    with open(path, "a", encoding="utf-8") as file:
        file.write("".join(json.dumps(each) + "\n" for each in answers))
