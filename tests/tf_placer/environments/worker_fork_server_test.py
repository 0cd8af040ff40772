"""Tests of the fork server of workers."""

from __future__ import annotations

import os
from unittest import mock

from absl.testing import absltest

from tf_placer.environments import worker_fork_server


class WorkerForkServerTest(absltest.TestCase):
    def test_a_server_that_was_started_early_is_used_once(self):
        directory = self.create_tempdir().full_path
        self.enter_context(mock.patch.object(worker_fork_server, "_MODULES", ()))
        paths = [os.path.join(directory, name) for name in ("early", "first", "second")]
        worker_fork_server.start_early(paths[0])
        servers = [worker_fork_server.start_fork_server(path) for path in paths[1:]]
        for server in servers:
            self.addCleanup(server.close)
        self.assertTrue(all(server.is_fit() for server in servers))
        # The first one took the early server, so that its own log was never opened.
        self.assertEqual([os.path.exists(path) for path in paths], [True, False, True])

    def test_an_early_server_serves_one_user_after_the_other(self):
        self.enter_context(mock.patch.object(worker_fork_server, "_MODULES", ()))
        worker_fork_server.start_early(os.devnull)
        first = worker_fork_server.start_fork_server(os.devnull)
        self.addCleanup(first.close)
        other = worker_fork_server.start_fork_server(os.devnull)
        worker_fork_server.release_fork_server(other)
        self.assertFalse(other.is_fit())
        worker_fork_server.release_fork_server(first)
        self.assertIs(worker_fork_server.start_fork_server(os.devnull), first)

    def test_an_early_server_that_has_died_is_replaced(self):
        self.enter_context(mock.patch.object(worker_fork_server, "_MODULES", ()))
        worker_fork_server.start_early(os.devnull)
        worker_fork_server._free[0]._process.kill()
        worker_fork_server._free[0]._process.wait()
        server = worker_fork_server.start_fork_server(os.devnull)
        self.addCleanup(server.close)
        self.assertTrue(server.is_fit())


if __name__ == "__main__":
    absltest.main()
