"""The numbers that the papers on device placement print.

`data/published_results.csv` has them all, one per line, with a note where a paper contradicts
itself.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import importlib.resources

__all__ = ["COLOCRL", "EAGLE", "POST", "Published", "find_published", "read_published_results"]

COLOCRL = "Device Placement Optimization with Reinforcement Learning"
POST = "Post: Device Placement with Cross-Entropy Minimization and Proximal Policy Optimization"
EAGLE = "EAGLE: Expedited Device Placement with Automatic Grouping for Large Models"

_OUT_OF_MEMORY = "OOM"


@dataclasses.dataclass(frozen=True)
class Published:
    """A number of a paper.

    Attributes:
        paper: its title.
        table: where in the paper, such as "Table 2" or "text 4.3".
        model: what was placed; empty where the number is of no model.
        batch: of the model; None where it is not said.
        machine: what it was placed on; empty where it is not said.
        num_gpus: of the machine; None where it is not said.
        method: what found the placement.
        metric: what the number is, such as "per_step_time".
        value: the number; None where the placement was out of memory.
        unit: of the number.
        note: what else is to be known.
    """

    paper: str
    table: str
    model: str
    batch: int | None
    machine: str
    num_gpus: int | None
    method: str
    metric: str
    value: float | None
    unit: str
    note: str

    @property
    def out_of_memory(self) -> bool:
        """True if the paper reports that memory was short."""
        return self.value is None


@functools.cache
def read_published_results() -> tuple[Published, ...]:
    """Reads all numbers, in the order of the file."""
    file = importlib.resources.files("benchmarks") / "data" / "published_results.csv"
    with file.open(encoding="utf-8") as lines:
        return tuple(_parse_row(row) for row in csv.DictReader(lines))


def find_published(
    paper: str,
    table: str,
    model: str,
    method: str,
    *,
    num_gpus: int | None = None,
    metric: str = "per_step_time",
) -> Published | None:
    """Finds the number of one cell of a table.

    Args:
        paper: its title.
        table: as the file calls it.
        model: as the file calls it.
        method: as the file calls it.
        num_gpus: of the machine; None for a number without.
        metric: as the file calls it.

    Returns:
        The number, or None if the paper has none.

    Raises:
        ValueError: the file has several.

    Example:
        >>> find_published(COLOCRL, "Table 2", "NMT", "Expert", num_gpus=2).value
        4.99
    """
    wanted = (paper, table, model, method, num_gpus, metric)
    found = [
        each
        for each in read_published_results()
        if wanted == (each.paper, each.table, each.model, each.method, each.num_gpus, each.metric)
    ]
    if len(found) > 1:
        raise ValueError(f"{len(found)} published numbers are {wanted}")
    return found[0] if found else None


def _parse_row(row: dict[str, str]) -> Published:
    return Published(
        paper=row["paper"],
        table=row["table"],
        model=row["model"],
        batch=int(row["batch"]) if row["batch"] else None,
        machine=row["machine"],
        num_gpus=int(row["n_gpus"]) if row["n_gpus"] else None,
        method=row["method"],
        metric=row["metric"],
        value=None if row["value"] == _OUT_OF_MEMORY else float(row["value"]),
        unit=row["unit"],
        note=row["note"],
    )
