"""The emulated GPUs of a process, as its environment variables specify them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tf_placer.processes import PLUGIN_VARIABLE

__all__ = [
    "DESCRIPTION_VARIABLE",
    "SPEC_VARIABLE",
    "apply_gpu_options",
    "find_emulated_description",
    "find_emulated_spec",
]

SPEC_VARIABLE = "TF_PLACER_EMULATED_MACHINE"
#: The file that the plugin reads.
DESCRIPTION_VARIABLE = "TF_PLACER_EMULATED"


def find_emulated_spec(environ: Mapping[str, str] | None = None) -> str | None:
    """Finds the name of the emulated machine whose GPUs a process has.

    Args:
        environ: the environment variables of the process; those of this process when None.

    Returns:
        The name, "emulated:4xK80"; None if the process has no emulated GPUs.
    """
    environ = os.environ if environ is None else environ
    return environ.get(SPEC_VARIABLE) if environ.get(PLUGIN_VARIABLE) else None


def find_emulated_description(environ: Mapping[str, str]) -> str | None:
    """Finds the file that describes the GPUs of a process; its name has a hash of its contents.

    Args:
        environ: the environment variables of the process.

    Returns:
        The path; None if the process has no emulated GPUs.
    """
    return environ.get(DESCRIPTION_VARIABLE) if find_emulated_spec(environ) else None


def apply_gpu_options(session_config: Any) -> None:
    """Applies the `gpu_options` of sessions to emulated GPUs.

    Newer versions of TensorFlow have separate options for pluggable devices.

    Args:
        session_config: a ConfigProto, which is changed if this process has emulated GPUs.
    """
    if find_emulated_spec() is not None and hasattr(session_config, "pluggable_device_options"):
        session_config.pluggable_device_options.CopyFrom(session_config.gpu_options)
