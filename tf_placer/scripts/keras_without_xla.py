"""Keras 3 in a process with emulated GPUs: where there is a GPU it takes XLA, which knows none."""

from __future__ import annotations

from typing import Any

from tf_placer.patches import wrap
from tf_placer.scripts.after_import import after_import

__all__ = ["choose_no_xla", "keep_keras_from_xla"]


def keep_keras_from_xla() -> None:
    """Has Keras, once it is imported, compile models by XLA only where they ask for it."""
    after_import({"keras": choose_no_xla})


def choose_no_xla(keras: Any) -> None:
    """Has models that leave the choice to Keras do without XLA, as on a computer without GPUs.

    Args:
        keras: the module; Keras 2 never chooses XLA, and stays as it is.
    """
    if hasattr(keras.Model, "_resolve_auto_jit_compile"):
        wrap("keras.Model._resolve_auto_jit_compile", lambda resolve, model: False)
