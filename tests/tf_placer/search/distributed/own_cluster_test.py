"""Tests of a private cluster on this computer: access, look-up and clean-up."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from absl.testing import absltest

from tests.tf_placer.process_tree import descendants, wait_until_gone
from tf_placer.errors import SearchError
from tf_placer.files import cache_directory
from tf_placer.search.distributed.own_cluster import OwnCluster, find_own_cluster, own_cluster
from tf_placer.search.distributed.ray_backend import connect_to_ray
from tf_placer.search.distributed.workers import SHORT_PREFIX, Workers

# Connects and prints the number of workers that there is room for; in a separate process, because
# Ray reads its environment once.
_CONNECT = """
import sys
from tf_placer.search.distributed.ray_backend import RayBackend, connect_to_ray
from tf_placer.search.distributed.workers import Workers
workers = Workers(sys.argv[1])
with connect_to_ray(workers):
    print("room for", RayBackend(workers, object).count_wanted())
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
        # The path must be short, because it contains sockets.
        temporary = tempfile.TemporaryDirectory(prefix="t", dir="/tmp")
        self.temporary = pathlib.Path(self.enter_context(temporary))
        self.temporary.chmod(0o777)
        self.enter_context(mock.patch.object(tempfile, "tempdir", str(self.temporary)))

    def assert_files_are_private(self):
        """Checks that Ray runs in a private directory, in which it opens its own to all users."""
        [private] = self.temporary.glob(f"{SHORT_PREFIX}*")
        self.assertEqual(stat.S_IMODE(private.stat().st_mode), 0o700)
        sockets = [path for path in private.rglob("sockets/*") if path.is_socket()]
        self.assertLen(sockets, 2)
        # UNIX allows 107 bytes for the path of a socket. Process ids have up to 7 digits.
        self.assertLess(max(len(str(path)) for path in sockets), 107)
        if os.getuid() == 0:
            nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "ls"]
            for path in (private, *sockets):
                self.assertNotEqual(
                    subprocess.run([*nobody, path], capture_output=True).returncode, 0
                )

    @unittest.skipIf(importlib.util.find_spec("ray") is None, "Ray is not installed")
    def test_only_searches_of_this_user_can_connect(self):
        with own_cluster(3) as cluster:
            self.assertEqual(find_own_cluster(), cluster)
            mode = os.stat(cache_directory() / "cluster.json").st_mode
            self.assertEqual(stat.S_IMODE(mode), 0o600)
            self.assert_files_are_private()
            for address in ("auto", cluster.address):
                found = connect(address)
                self.assertIn("room for 3", found.stdout, found.stderr)
            # Another user cannot find the token.
            stranger = {"XDG_CACHE_HOME": self.create_tempdir().full_path}
            token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
            # Ray tries three times, which takes long.
            waits = {"INITIAL": "1", "MAX": "1"}
            soon = {f"RAY_CLIENT_{name}_CONNECTION_TIMEOUT_S": n for name, n in waits.items()}
            refused = connect(cluster.address, **stranger, **token, **soon)
            self.assertNotIn("room for", refused.stdout)
            self.assertRegex(refused.stderr, "cannot connect to workers='ray://")
            with self.assertRaisesRegex(SearchError, "a cluster of yours runs already, at ray://"):
                own_cluster(1).__enter__()
        self.assertIsNone(find_own_cluster())

    @unittest.skipIf(importlib.util.find_spec("ray") is None, "Ray is not installed")
    def test_killing_the_cluster_ends_the_processes_of_ray(self):
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

    def test_auto_prefers_the_own_cluster_unless_ray_address_is_set(self):
        def address_for(asked: str, **variables: str) -> str:
            ray = mock.MagicMock(__spec__=object())
            with (
                mock.patch.dict(sys.modules, ray=ray),
                mock.patch.dict(os.environ, variables),
                connect_to_ray(Workers(asked)),
            ):
                return ray.init.call_args.kwargs["address"]

        self.assertEqual(address_for("auto"), "auto")
        cluster = OwnCluster("ray://127.0.0.1:2", "127.0.0.1:1", "0" * 64, os.getpid())
        path = cache_directory() / "cluster.json"
        path.parent.mkdir()
        path.write_text(json.dumps(dataclasses.asdict(cluster)))
        self.assertEqual(address_for("auto"), "127.0.0.1:1")
        self.assertEqual(address_for("ray://127.0.0.1:2"), "ray://127.0.0.1:2")
        self.assertEqual(address_for("ray://127.0.0.1:3"), "ray://127.0.0.1:3")
        # Ray's own variable takes precedence.
        self.assertEqual(address_for("auto", RAY_ADDRESS="127.0.0.1:4"), "auto")

    def test_the_file_of_a_dead_cluster_is_ignored(self):
        path = cache_directory() / "cluster.json"
        path.parent.mkdir()
        for content in ("", "[]", '{"address": "ray://127.0.0.1:1"}'):
            path.write_text(content)
            self.assertIsNone(find_own_cluster())
        gone = subprocess.Popen(["true"])
        gone.wait()
        path.write_text(json.dumps(dataclasses.asdict(OwnCluster("a", "b", "c", gone.pid))))
        self.assertIsNone(find_own_cluster())

    @unittest.skipIf(importlib.util.find_spec("ray") is None, "Ray is not installed")
    def test_a_cluster_without_room_is_refused(self):
        with self.assertRaisesRegex(ValueError, "at least 1 worker"):
            own_cluster(0).__enter__()


if __name__ == "__main__":
    absltest.main()
