"""Tests of finding running clusters."""

from __future__ import annotations

import socket

from absl.testing import absltest, parameterized

from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import MachineError


class ClusterMachineTest(parameterized.TestCase):
    @parameterized.parameters(
        ("grpc://localhost", "is not an address like 'grpc://HOST:PORT'"),
        ("grpc://localhost:99999", "is not an address"),
    )
    def test_rejects_malformed_addresses(self, spec, message):
        with self.assertRaisesRegex(MachineError, message):
            find_machine(spec)

    def test_an_unreachable_cluster_is_an_error_with_its_address(self):
        with socket.socket() as listener:
            listener.bind(("localhost", 0))
            port = listener.getsockname()[1]
            with self.assertRaisesRegex(
                MachineError,
                f"no TensorFlow server answers at grpc://localhost:{port}: Connection refused",
            ):
                find_machine(f"grpc://localhost:{port}")


if __name__ == "__main__":
    absltest.main()
