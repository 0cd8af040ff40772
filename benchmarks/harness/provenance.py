"""The provenance of a result: versions, commit, processor and command."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import platform
import shlex
import subprocess
import sys
from typing import Any

import tf_placer
from tf_placer.machines.processor import find_processor_name

__all__ = ["commit", "package_versions", "provenance"]

_PACKAGES = (
    *("numpy", "scipy", "networkx", "pymetis", "ortools"),
    *("tensorflow", "tensorflow-cpu"),
)


def package_versions() -> dict[str, str]:
    """Lists the versions of this package, of Python, and of what is installed of what it uses."""
    versions = {"tf_placer": tf_placer.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def commit(root: pathlib.Path | None = None) -> str:
    """Finds the commit of a source tree, "+" behind it if files differ from it; "" if unknown.

    Args:
        root: the tree; this one by default.
    """
    root = root or pathlib.Path(__file__).resolve().parents[2]
    outputs = []
    for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"]):
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *command], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return ""  # No repository, or no git.
        outputs.append(done.stdout.strip())
    return outputs[0] + ("+" if outputs[1] else "")


def provenance() -> dict[str, Any]:
    """Says what made a result: the program that runs.

    Returns:
        `command`, `versions`, `commit`, `processor` and `cores`; for a JSON file.
    """
    return {
        "command": shlex.join(["python", *_program(), *sys.argv[1:]]),
        "versions": package_versions(),
        "commit": commit(),
        "processor": find_processor_name(),
        "cores": len(os.sched_getaffinity(0)),
    }


def _program() -> list[str]:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return [sys.argv[0]] if spec is None else ["-m", spec.name]
