"""Files of tables, each with the command and the computer that made it."""

from __future__ import annotations

import pathlib

from benchmarks.harness.provenance import provenance

__all__ = ["write_table"]


def write_table(text: str, path: pathlib.Path | None = None) -> None:
    """Prints a table, and writes it, with the command and the computer that made it.

    Args:
        text: the table and what it means.
        path: the file; None to print only.
    """
    made_by = provenance()
    versions = ", ".join(f"{name} {version}" for name, version in made_by["versions"].items())
    text = (
        f"{text.rstrip()}\n\nMade by `{made_by['command']}` at commit "
        f"{made_by['commit'] or 'unknown'} with {versions}, on {made_by['processor']}, "
        f"{made_by['cores']} cores."
    )
    print(text, flush=True)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
