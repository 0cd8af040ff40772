"""Reads how the program has set up the GPUs of this process in `tf.config`."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.eager import context

from tf_placer.machines.emulation_state import find_emulated_spec

__all__ = ["build_session_config", "holds_gpu_memory"]


def build_session_config() -> tf.compat.v1.ConfigProto:
    """Builds a session configuration with the GPUs that functions of this process see.

    TensorFlow does not list GPUs here unless the program has listed them before.

    Returns:
        TensorFlow's default, unless the program has hidden or divided GPUs.
    """
    config = tf.compat.v1.ConfigProto()
    if not getattr(context.context(), "_physical_devices", None):
        return config
    gpus, visible = (
        list_devices("GPU")
        for list_devices in (tf.config.list_physical_devices, tf.config.get_visible_devices)
    )
    if visible != gpus:
        config.device_count["GPU"] = len(visible)
        config.gpu_options.visible_device_list = ",".join(str(gpus.index(gpu)) for gpu in visible)
    divided = [tf.config.get_logical_device_configuration(gpu) for gpu in visible]
    if any(divided):
        for parts in divided:
            limits = [part.memory_limit for part in parts or ()]
            config.gpu_options.experimental.virtual_devices.add(
                memory_limit_mb=[limit for limit in limits if limit is not None]
            )
    return config


def holds_gpu_memory() -> bool:
    """Says whether eager TensorFlow has reserved the GPU memory of this process, its default.

    Memory that sessions have reserved is not detected.
    """
    if find_emulated_spec() is not None or not getattr(context.context(), "_initialized", False):
        return False  # Emulated GPUs have separate memory in each process.
    gpus = tf.config.get_visible_devices("GPU")
    return any(not tf.config.experimental.get_memory_growth(gpu) for gpu in gpus)
