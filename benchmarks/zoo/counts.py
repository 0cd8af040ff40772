"""Outcomes of placements: records in files with a line for each batch, and a table."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterable

from tf_placer.text.markdown import markdown_table

__all__ = ["Counts", "append_counts", "placements_table", "read_counts"]


@dataclasses.dataclass(frozen=True)
class Counts:
    """The outcomes of placements of one kind.

    Attributes:
        kind: its name.
        fingerprint: of its graph.
        operations: how many a step needs.
        groups: how many coarse groups of them may be placed.
        placements: how many were run.
        accepted: how many of them ran without an error.
        equal: how many of these computed the same.
        cpu_secs: processor time that they took.
        problem: the first error or difference; empty without one.
    """

    kind: str
    fingerprint: str = ""
    operations: int = 0
    groups: int = 0
    placements: int = 0
    accepted: int = 0
    equal: int = 0
    cpu_secs: float = 0.0
    problem: str = ""

    def plus(self, other: Counts) -> Counts:
        """Adds later placements of the same graph."""
        return dataclasses.replace(
            self,
            operations=other.operations or self.operations,
            groups=other.groups or self.groups,
            placements=self.placements + other.placements,
            accepted=self.accepted + other.accepted,
            equal=self.equal + other.equal,
            cpu_secs=self.cpu_secs + other.cpu_secs,
            problem=self.problem or other.problem,
        )


def read_counts(path: pathlib.Path, fingerprint: str | None = None) -> Counts:
    """Adds up the lines that `count_kind` wrote.

    Args:
        path: the file; its name is that of the kind.
        fingerprint: of the graph that counts; None for that of the last line.

    Returns:
        The counts; those of other graphs, and a line that was cut short, are left out. A problem
        without placements counts only if nothing came after it.
    """
    total, last_problem = Counts(path.stem, fingerprint or ""), ""
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            counts = Counts(**json.loads(line))
        except (TypeError, ValueError):
            continue
        if fingerprint is None and counts.fingerprint != total.fingerprint:
            total = Counts(path.stem, counts.fingerprint)
        if counts.fingerprint == total.fingerprint:
            if counts.placements:
                last_problem = ""
            else:
                last_problem, counts = counts.problem, dataclasses.replace(counts, problem="")
            total = total.plus(counts)
    return dataclasses.replace(total, problem=total.problem or last_problem)


def append_counts(path: pathlib.Path, counts: Counts) -> None:
    """Writes a line, on a line of its own even if the last one was cut short."""
    text = json.dumps(dataclasses.asdict(counts), allow_nan=False)
    cut_short = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    with path.open("a") as file:
        file.write(f"\n{text}\n" if cut_short else f"{text}\n")


def placements_table(all_counts: Iterable[Counts]) -> str:
    """Formats the outcomes of all placements, in Markdown; the last row adds up."""
    found = list(all_counts)
    sums = {
        name: sum(getattr(counts, name) for counts in found)
        for name in ("placements", "accepted", "equal")
    }
    rows = [
        [
            counts.kind,
            *(f"{number:,}" if number else "" for number in (counts.operations, counts.groups)),
            *(f"{n:,}" for n in (counts.placements, counts.accepted, counts.equal)),
            counts.problem,
        ]
        for counts in (*found, Counts("all", **sums))
    ]
    headers = ["kind", "operations", "groups", "placements", "accepted", "equal"]
    return markdown_table([*headers, "problem"], rows, "lrrrrrl")
