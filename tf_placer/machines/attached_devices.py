"""A process that lists the devices of TensorFlow, so that no other process has to start a GPU.

Run by `tf_placer.machines.session_devices` as `python -m tf_placer.machines.attached_devices`.
"""

from __future__ import annotations

import os

from tf_placer.machines.emulation_state import apply_gpu_options
from tf_placer.processes import Parent

__all__ = ["main"]


def main() -> None:
    """Sends the devices of a session to the parent process and exits."""
    parent = Parent()
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto.FromString(bytes.fromhex(parent.settings["session_config"]))
    config.operation_timeout_in_ms = int(parent.settings["timeout_secs"] * 1000)
    config.gpu_options.allow_growth = True
    apply_gpu_options(config)
    try:
        target = parent.settings["target"]
        with tf.compat.v1.Session(target, graph=tf.Graph(), config=config) as session:
            devices = [
                {
                    "name": device.name,
                    "type": device.device_type,
                    "memory_bytes": device.memory_limit_bytes,
                }
                for device in session.list_devices()
            ]
        parent.send({"devices": devices})
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        parent.send({"error": " ".join(str(error).split())})
    os._exit(0)  # Skip the cleanup of TensorFlow, which this process does not need.


if __name__ == "__main__":
    main()
