"""What a campaign keeps: a line of JSON for each case, and a table of how they were answered."""

from __future__ import annotations

import collections
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tf_placer.text.markdown import markdown_table

__all__ = ["append_answers", "read_answers", "report_answers"]

_LONGEST = 300


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


def report_answers(
    answers: Sequence[Mapping[str, Any]],
    good: Sequence[str],
    kind: Callable[[Mapping[str, Any]], str],
    title: str,
) -> str:
    """Counts answers by kind of case, and lists those that are not good.

    Args:
        answers: `case`, `answer` and `words` of each.
        good: answers that are as they should be.
        kind: names the kind of a case.
        title: of the column of kinds.
    """
    counts = collections.Counter((kind(each), each["answer"]) for each in answers)
    hows = sorted({how for _, how in counts}, key=lambda how: (how not in good, how))
    kinds = sorted({name for name, _ in counts})
    rows = [[name, *(str(counts[name, how]) for how in hows)] for name in kinds]
    totals = collections.Counter(each["answer"] for each in answers)
    rows.append(["all", *(str(totals[how]) for how in hows)])
    lines = [markdown_table([title, *hows], rows)]
    for each in answers:
        if each["answer"] not in good:
            words = each["words"].strip().splitlines() or [""]
            line = f"case {each['case']}, {kind(each)}: {each['answer']}: {words[-1][:_LONGEST]}"
            lines.append(line.encode("utf-8", "backslashreplace").decode())
    return "\n".join(lines)
