"""Keeps Keras 3 from choosing XLA on emulated GPUs, which XLA does not support."""

from __future__ import annotations

from typing import Any

from tf_placer.patches import wrap
from tf_placer.scripts.import_hook import run_after_import

__all__ = ["disable_auto_xla", "disable_keras_xla"]


def disable_keras_xla() -> None:
    """Makes Keras, once it is imported, use XLA only for models that ask for it."""
    run_after_import({"keras": disable_auto_xla})


def disable_auto_xla(keras: Any) -> None:
    """Makes jit_compile="auto" mean no XLA, as on a computer without GPUs.

    Args:
        keras: the module. Keras 2 never chooses XLA, and is not changed.
    """
    if hasattr(keras.Model, "_resolve_auto_jit_compile"):
        wrap("keras.Model._resolve_auto_jit_compile", lambda resolve, model: False)
