"""A TensorFlow server of a local machine: the process of one device, on its own cores.

Run by `tf_placer.machines.local_cluster` as `python -m tf_placer.machines.local_server`.
"""

from __future__ import annotations

import os
import threading

from tf_placer.machines.tensorflow_runtime import import_runtime
from tf_placer.processes import Parent, pin_to_cores

__all__ = ["main"]

# A single thread runs a whole chain of operations before it sends tensors that are ready, so the
# work of two servers would never overlap.
_MIN_THREADS = 8


def main() -> None:
    """Serves until the parent process ends."""
    parent = Parent()
    cores = parent.settings["cores"]
    pin_to_cores(cores)
    threads = max(_MIN_THREADS, len(cores))
    # Functions that other processes call here ignore the configuration of this server.
    os.environ["TF_NUM_INTEROP_THREADS"] = str(threads)
    c_api, server_proto = import_runtime()
    definition = server_proto.ServerDef(
        job_name="worker", task_index=parent.settings["task"], protocol="grpc"
    )
    tasks = definition.cluster.job.add(name="worker").tasks
    for task, port in enumerate(parent.settings["ports"]):
        tasks[task] = f"localhost:{port}"
    definition.default_session_config.intra_op_parallelism_threads = len(cores)
    definition.default_session_config.inter_op_parallelism_threads = threads
    server = c_api.TF_NewServer(definition.SerializeToString())
    c_api.TF_ServerStart(server)
    parent.send({"target": c_api.TF_ServerTarget(server)})
    threading.Event().wait()


if __name__ == "__main__":
    main()
