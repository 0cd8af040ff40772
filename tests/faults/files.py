"""Files that a search must not leave."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re

__all__ = ["find_leftovers", "half_files"]

_OF_THE_MOMENT = re.compile(r"\.tmp$|^tf_placer_scratch_|^tfp_ray_")


def half_files(directory: pathlib.Path) -> list[str]:
    """Lists the files that are written whole, and are not."""
    found = []
    for path in directory.rglob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            try:
                json.loads(path.read_bytes())
            except ValueError:
                found.append(path.name)
    return found


def find_leftovers(directory: pathlib.Path, temporary: pathlib.Path | None = None) -> list[str]:
    """Lists what must be gone when a search has ended; in a temporary directory every file."""
    found = {path for path in directory.rglob("*") if _OF_THE_MOMENT.search(path.name)}
    if temporary is not None:
        found |= {path for path in temporary.rglob("*") if not path.is_dir()}
    return sorted(str(path.relative_to(directory)) for path in found)
