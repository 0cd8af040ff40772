"""Networks of nodes that are cut; skipped where this is not root."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest

from absl.testing import absltest

from benchmarks.campaigns.cuttable_network import why_not

# In a process of its own, which moves into another network.
_TRY = """
import socket, subprocess, sys
from benchmarks.campaigns.cuttable_network import CuttableNetwork

network = CuttableNetwork()
nodes = [network.add(), network.add()]
server = socket.create_server((network.address, 5555))
code = f"import socket; socket.create_connection(({network.address!r}, 5555), 1.0)"

def reach():
    found = []
    for node in nodes:
        with network.inside(node):
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        found.append(done.stderr.strip().rpartition("\\n")[2] or "reached")
    print(*found, sep=", ")

reach()
network.cut(nodes[0])
reach()
network.mend(nodes[0])
reach()
"""


@unittest.skipIf(why_not(), "no network can be cut here")
class CuttableNetworkTest(absltest.TestCase):
    def test_a_node_that_is_cut_off_hears_nothing_and_others_go_on(self):
        done = subprocess.run(
            [sys.executable, "-c", _TRY],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.stderr, "")
        self.assertEqual(
            done.stdout.splitlines(),
            ["reached, reached", "TimeoutError: timed out, reached", "reached, reached"],
        )


if __name__ == "__main__":
    absltest.main()
