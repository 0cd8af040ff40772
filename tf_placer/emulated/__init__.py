"""GPUs emulated in TensorFlow's own runtime.

`make_environment` makes the environment variables for a process with emulated GPUs; the calling
process gets none. `is_emulating` tells whether this process has the GPUs of an emulated machine.
"""

from __future__ import annotations

from tf_placer.emulated.plugin import is_emulating, make_environment

__all__ = ["is_emulating", "make_environment"]
