"""Environment variables that load the plugin, so that a process has emulated GPUs."""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Mapping

from tf_placer.files import write_text
from tf_placer.machines.emulation_state import (
    DESCRIPTION_VARIABLE,
    SPEC_VARIABLE,
    find_emulated_spec,
)
from tf_placer.machines.machine import Machine
from tf_placer.processes import environment_with_plugin

__all__ = ["is_emulating", "make_environment"]

_SOURCE = pathlib.Path(__file__).parent / "emulated_gpu.cc"
_HEADER = "tensorflow/c/experimental/stream_executor/stream_executor.h"


def make_environment(machine: Machine, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Makes environment variables for a process that has the GPUs of an emulated machine.

    Real GPUs of this computer are invisible to the process. The first call builds the plugin.

    Args:
        machine: a machine of kind "emulated".
        environ: the variables to extend; those of this process when None.

    Returns:
        An extended copy of the variables.

    Raises:
        LibraryError: the plugin cannot be built, or conflicts with the kernels of this TensorFlow;
            the message gives the reason.
        OSError: the description of the machine cannot be written.
    """
    # Import TensorFlow only here, because callers of `is_emulating` do not need it.
    import tensorflow as tf

    from tf_placer.emulated.description import describe_machine
    from tf_placer.library_build import LibraryError, build_library

    if tf.sysconfig.get_build_info()["is_cuda_build"]:
        raise LibraryError(
            "GPUs cannot be emulated with a TensorFlow that is built for CUDA, whose own kernels "
            "would run on them: 'pip uninstall tensorflow' and then 'pip install --no-deps "
            f"--force-reinstall tensorflow-cpu=={tf.__version__}', here or in another environment"
        )
    library = build_library(_SOURCE, _HEADER, what="the plugin for emulated GPUs")
    text = describe_machine(machine)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = library.parent / f"machine-{digest}.tsv"
    if not path.exists():
        write_text(path, text)
    variables = {DESCRIPTION_VARIABLE: os.fspath(path), SPEC_VARIABLE: machine.spec}
    return environment_with_plugin(library, environ) | variables


def is_emulating(spec: str) -> bool:
    """Tells whether this process has the GPUs of the emulated machine with this name."""
    return find_emulated_spec() == spec
