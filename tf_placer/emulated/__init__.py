"""GPUs emulated in TensorFlow's own runtime.

`environment` makes the variables of a process whose TensorFlow has the GPUs of an emulated machine;
the process that asks for it needs no GPU, and does not get one. `is_on` says whether this process
has them.
"""

from __future__ import annotations

from tf_placer.emulated.plugin import environment, is_on

__all__ = ["environment", "is_on"]
