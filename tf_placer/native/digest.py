"""The digest of the sources of the compiled core. `setup.py` runs this file alone."""

from __future__ import annotations

import hashlib
import pathlib

__all__ = ["compute_sources_digest"]


def compute_sources_digest(folder: pathlib.Path) -> str:
    """Computes a digest of the C++ files in a folder; "" if there are none."""
    files = sorted([*folder.glob("*.cc"), *folder.glob("*.h")])
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16] if files else ""
