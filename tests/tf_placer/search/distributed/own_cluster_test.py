"""A cluster on this computer: who may connect, what is found, what is left behind."""

from __future__ import annotations

import importlib.util
import os
import stat
import subprocess
import sys
import unittest
from unittest import mock

from absl.testing import absltest

from tests.tf_placer.process_tree import descendants, wait_until_gone
from tf_placer.errors import SearchError
from tf_placer.files import cache_directory
from tf_placer.search.distributed.own_cluster import find_own_cluster, own_cluster

# Connects and says how many workers there is room for; in a process of its own, because Ray reads
# its environment once.
_CONNECT = """
import sys
from tf_placer.search.distributed.ray_fleet import RayFleet, connected
from tf_placer.search.distributed.workers import Workers
workers = Workers(sys.argv[1])
with connected(workers):
    print("room for", RayFleet(workers, object).wanted())
"""
# Runs a cluster until its standard input ends.
_RUN = """
from tf_placer.search.distributed.own_cluster import own_cluster
with own_cluster(1):
    print("it runs", flush=True)
    input()
"""


def connect(address: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _CONNECT, address],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


class OwnClusterTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        cache = self.create_tempdir().full_path
        self.enter_context(mock.patch.dict(os.environ, XDG_CACHE_HOME=cache))

    @unittest.skipIf(importlib.util.find_spec("ray") is None, "Ray is not installed")
    def test_searches_of_this_user_connect_and_nobody_else(self):
        with own_cluster(3) as cluster:
            self.assertEqual(find_own_cluster(), cluster)
            mode = os.stat(cache_directory() / "cluster.json").st_mode
            self.assertEqual(stat.S_IMODE(mode), 0o600)
            self.assertIn("room for 3", connect("auto").stdout)
            self.assertIn("room for 3", connect(cluster.address).stdout)
            # Somebody else does not find the token.
            stranger = {"XDG_CACHE_HOME": self.create_tempdir().full_path}
            token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
            refused = connect(cluster.address, **stranger, **token)
            self.assertNotIn("room for", refused.stdout)
            self.assertRegex(refused.stderr, "cannot connect to workers='ray://")
            with self.assertRaisesRegex(SearchError, "a cluster of yours runs already, at ray://"):
                own_cluster(1).__enter__()
        self.assertIsNone(find_own_cluster())

    @unittest.skipIf(importlib.util.find_spec("ray") is None, "Ray is not installed")
    def test_a_cluster_that_is_killed_takes_the_processes_of_ray_with_it(self):
        command = subprocess.Popen(
            [sys.executable, "-c", _RUN],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with command:
            self.assertEqual(command.stdout.readline(), "it runs\n")
            below = descendants(command.pid)
            self.assertGreater(len(below), 2)
            command.kill()
        self.assertEmpty(wait_until_gone(below, timeout_secs=60))
        self.assertIsNone(find_own_cluster())

    def test_a_file_of_a_cluster_that_is_gone_is_not_believed(self):
        path = cache_directory() / "cluster.json"
        path.parent.mkdir()
        for content in ("", "[]", '{"address": "ray://127.0.0.1:1"}'):
            path.write_text(content)
            self.assertIsNone(find_own_cluster())
        gone = subprocess.Popen(["true"])
        gone.wait()
        path.write_text(f'{{"address": "a", "token": "b", "process": {gone.pid}}}')
        self.assertIsNone(find_own_cluster())

    @unittest.skipIf(importlib.util.find_spec("ray") is None, "Ray is not installed")
    def test_a_cluster_without_room_is_refused(self):
        with self.assertRaisesRegex(ValueError, "at least 1 worker"):
            own_cluster(0).__enter__()


if __name__ == "__main__":
    absltest.main()
