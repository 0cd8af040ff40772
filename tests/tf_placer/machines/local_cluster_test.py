"""Tests of the servers of a local machine."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
from unittest import mock

import tensorflow as tf
from absl import logging
from absl.testing import absltest

from tf_placer.machines.local_cluster import LocalCluster, LocalClusterError
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Device, Machine, name_worker_cpu

_MACHINE = find_machine("local:2")


def _is_running(pid: int) -> bool:
    return pathlib.Path(f"/proc/{pid}").exists()


class LocalClusterTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with mock.patch.object(logging, "warning") as cls.warning:
            cls.cluster = cls.enterClassContext(LocalCluster(_MACHINE))

    def test_a_warning_says_how_to_keep_others_out(self):
        # Without a private network, TensorFlow's servers listen on every interface.
        port = int(self.cluster.target.rpartition(":")[2])
        sockets = "".join(pathlib.Path("/proc/net", name).read_text() for name in ("tcp", "tcp6"))
        self.assertRegex(sockets, f" 0+:{port:04X} 0+:0000 0A ")
        (_, text), _ = self.warning.call_args
        self.assertStartsWith(text, "the servers of local:2 listen without a password: every user")
        self.assertIn("`python -m tf_placer serve local:2 -- COMMAND`", text)

    def test_operations_run_on_their_devices(self):
        with tf.Graph().as_default() as graph:
            with tf.device(_MACHINE.devices[0].name):
                a = tf.random.uniform([4], name="a")
            with tf.device(_MACHINE.devices[1].name):
                b = tf.add(a, 1.0, name="b")
        metadata = tf.compat.v1.RunMetadata()
        with tf.compat.v1.Session(self.cluster.target, graph=graph) as session:
            session.run(
                b,
                options=tf.compat.v1.RunOptions(output_partition_graphs=True),
                run_metadata=metadata,
            )
        devices = {n.name: n.device for part in metadata.partition_graphs for n in part.node}
        self.assertEqual(devices["a/RandomUniform"], _MACHINE.devices[0].name)
        self.assertEqual(devices["b"], _MACHINE.devices[1].name)

    def test_every_server_is_pinned_to_its_share_of_the_cores(self):
        for device, server in zip(_MACHINE.devices, self.cluster.servers, strict=True):
            cores = []
            for name in os.listdir(f"/proc/{server.pid}/task"):
                with contextlib.suppress(ProcessLookupError):  # The thread has ended meanwhile.
                    cores.append(os.sched_getaffinity(int(name)))
            self.assertGreater(len(cores), 1)
            self.assertEqual(cores, [set(device.cores)] * len(cores))

    def test_find_machine_lists_the_devices_of_the_given_server_first(self):
        machine = find_machine(self.cluster.targets[1])
        self.assertEqual(machine.kind, "cluster")
        self.assertEqual(
            [(d.name, d.type, d.memory_bytes) for d in machine.devices],
            [(d.name, "CPU", None) for d in reversed(_MACHINE.devices)],
        )

    def test_wait_returns_after_the_timeout_if_all_servers_live(self):
        self.cluster.wait(timeout_secs=0.01)


class NumaClusterTest(absltest.TestCase):
    def test_servers_are_pinned_to_their_nodes_but_may_take_memory_of_others(self):
        cores = sorted(os.sched_getaffinity(0))
        nodes = (cores[-1:], cores[:1])
        devices = (
            Device(name_worker_cpu(task), "CPU", 2**20, tuple(node))
            for task, node in enumerate(nodes)
        )
        with tf.Graph().as_default() as graph, tf.device(name_worker_cpu(1)):
            total = tf.reduce_sum(tf.ones([2**22]))  # 16 MiB.
        with LocalCluster(Machine("numa", "numa", tuple(devices))) as cluster:
            for node, server in zip(nodes, cluster.servers, strict=True):
                self.assertEqual(os.sched_getaffinity(server.pid), set(node))
            with tf.compat.v1.Session(cluster.target, graph=graph) as session:
                self.assertEqual(session.run(total), 2**22)


class LocalClusterLifeTest(absltest.TestCase):
    def test_uses_a_fixed_port_reports_a_death_and_stops_its_servers(self):
        with socket.socket() as listener:
            listener.bind(("localhost", 0))
            port = listener.getsockname()[1]
        with LocalCluster(find_machine("local:1"), port) as cluster:
            self.assertEqual(cluster.target, f"grpc://localhost:{port}")
            with self.assertRaisesRegex(LocalClusterError, f"cannot listen on port {port}"):
                LocalCluster(find_machine("local:1"), port)
            os.kill(cluster.servers[0].pid, signal.SIGKILL)
            with self.assertRaisesRegex(LocalClusterError, r"task 0 was killed by signal 9"):
                cluster.wait()
        self.assertFalse(_is_running(cluster.servers[0].pid))

    def test_reports_why_a_server_cannot_start(self):
        machine = find_machine("local:1")
        impossible = Machine.from_json(
            {**machine.to_json(), "devices": [{**machine.to_json()["devices"][0], "cores": [9999]}]}
        )
        with self.assertRaisesRegex(
            LocalClusterError, "task 0 exited with code 1 while it started"
        ):
            LocalCluster(impossible).__enter__()

    def test_rejects_other_machines(self):
        machine = Machine("attached", "attached", _MACHINE.devices, ())
        with self.assertRaisesRegex(ValueError, "'local:N', not 'attached'"):
            LocalCluster(machine)
        for other in ("local:2", None, 3):
            with self.assertRaisesRegex(ValueError, f"needs a Machine, .* not {other!r}"):
                LocalCluster(other)

    def test_rejects_invalid_ports(self):
        for port in (0, -1, 65536, "2222", 1.5, True):
            with self.assertRaisesRegex(ValueError, f"from 1 to 65535, not {port!r}"):
                LocalCluster(_MACHINE, port)


if __name__ == "__main__":
    absltest.main()
