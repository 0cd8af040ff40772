"""Tests of workers as actors of Ray on this computer; most are skipped if Ray is not installed."""

from __future__ import annotations

import collections
import contextlib
import importlib.util
import io
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import unittest
from unittest import mock

import numpy as np
from absl.testing import absltest

from tests.tf_placer.search.distributed import fake_backend
from tests.tf_placer.search.distributed.waiting_worker import WaitingWorker
from tf_placer.errors import SearchError
from tf_placer.search.distributed import ray_backend
from tf_placer.search.distributed.actor_backend import WorkerLostError
from tf_placer.search.distributed.ray_backend import RayBackend, connect_to_ray
from tf_placer.search.distributed.supervision import Timeouts
from tf_placer.search.distributed.worker_pool import WorkerPool
from tf_placer.search.distributed.workers import Workers

_WORKERS = Workers("ray", 2)
_LATE = RuntimeError("The current node timed out during startup. This could happen")


class StartTest(absltest.TestCase):
    def connect(self, outcomes) -> int:
        """Connects to a Ray whose starts have these outcomes, and returns how many there were."""
        ray = mock.Mock()
        ray.init.side_effect = outcomes
        with (
            mock.patch.dict(sys.modules, ray=ray),
            mock.patch.object(ray_backend, "require_ray"),
            mock.patch.dict(os.environ),
            connect_to_ray(_WORKERS),
        ):
            return ray.init.call_count

    def test_ray_that_times_out_while_it_starts_is_started_again(self):
        self.assertEqual(self.connect([_LATE, None]), 2)
        with self.assertRaisesRegex(SearchError, "cannot connect .* timed out during startup"):
            self.connect([_LATE, _LATE])

    def test_processes_of_a_start_that_timed_out_are_killed(self):
        started = []

        def start(_temp_dir: str, **_):
            if started:
                return
            program = "import time; print(flush=True); time.sleep(60)"
            raylet = [sys.executable, "-c", program, _temp_dir]
            started.append(subprocess.Popen(raylet, stdout=subprocess.PIPE))
            self.addCleanup(started[0].communicate)
            self.addCleanup(started[0].kill)
            started[0].stdout.readline()
            raise _LATE

        self.assertEqual(self.connect(start), 2)
        self.assertEqual(started[0].wait(30), -signal.SIGKILL)

    def test_other_failures_of_ray_end_the_search(self):
        with self.assertRaisesRegex(SearchError, "cannot connect to workers='ray': no port"):
            self.connect([OSError("no port"), None])


@unittest.skipIf(importlib.util.find_spec("ray") is None, "Ray is not installed")
class RayBackendTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Actors must be able to import the modules of the tests.
        cls.enterClassContext(mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        # All tests share one Ray, which takes long to start.
        cls.enterClassContext(connect_to_ray(_WORKERS))

    def setUp(self):
        super().setUp()
        self.log = pathlib.Path(self.create_tempdir().full_path, "measured")
        self.lines: list[str] = []

    def make_backend(self, trial_secs: float = 0.05) -> RayBackend:
        backend = RayBackend(_WORKERS, WaitingWorker, trial_secs, str(self.log))
        self.addCleanup(backend.close)
        return backend

    def pool(self, backend: RayBackend, **changes) -> WorkerPool:
        timeouts = Timeouts(poll_interval=0.05, ping_interval=0.5, max_silence=2.0)
        return WorkerPool(
            backend,
            fake_backend.assign,
            timeout_secs=lambda: 60.0,
            report=self.lines.append,
            timeouts=timeouts,
            **changes,
        )

    def measure(self, pool: WorkerPool, count: int, on_ended=lambda number: None):
        pool.measure_original()
        while pool.capacity < 2:
            pool._advance()
        for number in range(count):
            pool.submit(number, np.array([number], np.int32))
        ended = []
        while len(ended) < count:
            ended += pool.wait()
            on_ended(len(ended))
        self.assertCountEqual([each.key for each in ended], range(count))
        for each in ended:
            expected_secs = fake_backend.ORIGINAL_SECS * fake_backend.relative_secs([each.key])
            self.assertAlmostEqual(each.measurement.median_secs, expected_secs)

    def pids(self) -> collections.Counter[int]:
        return collections.Counter(map(int, self.log.read_text().split()))

    def test_two_workers_measure_at_once_in_separate_processes(self):
        self.measure(self.pool(self.make_backend()), 12)
        self.assertLen(self.pids(), 2)
        self.assertNotIn(os.getpid(), self.pids())

    def test_actors_have_the_thread_and_gpu_variables_of_the_search(self):
        backend = self.make_backend()
        worker = backend.start()
        environ = backend.result(backend.call(worker, "begin", 1.0)).versions
        self.assertEqual(environ.get("OMP_NUM_THREADS"), os.environ.get("OMP_NUM_THREADS"))
        self.assertEqual(
            environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_VISIBLE_DEVICES")
        )

    def test_a_killed_worker_is_replaced_and_each_placement_is_measured_once(self):
        killed = []

        def kill(number):
            if number >= 3 and not killed:
                killed.append(next(iter(self.pids())))
                os.kill(killed[0], signal.SIGKILL)

        pool = self.pool(self.make_backend(0.3))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.measure(pool, 10, kill)
        # Ray's messages about the death must not get into the output of a command.
        self.assertEqual(printed.getvalue(), "")
        # The replacement may become ready only after all placements were measured.
        while pool.capacity < 2:
            pool._advance()
        self.assertTrue(any("is lost" in line for line in self.lines), self.lines)

    def test_a_worker_that_hangs_is_replaced(self):
        stopped = []

        def stop(number):
            if number >= 3 and not stopped:
                stopped.append(next(iter(self.pids())))
                os.kill(stopped[0], signal.SIGSTOP)

        self.measure(self.pool(self.make_backend(0.3)), 16, stop)
        self.assertRegex(" ".join(self.lines), "has not answered for")
        deadline = time.monotonic() + 30
        while os.path.exists(f"/proc/{stopped[0]}") and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertFalse(os.path.exists(f"/proc/{stopped[0]}"))

    def test_an_error_of_a_method_keeps_its_message(self):
        backend = self.make_backend()
        call = backend.call(backend.start(), "fail")
        with self.assertRaisesRegex(WorkerLostError, "^it cannot be done$") as raised:
            backend.result(call)
        self.assertTrue(raised.exception.has_failed)

    def test_ray_listens_on_the_loopback_only_and_requires_a_token(self):
        self.assertEqual(os.environ["RAY_AUTH_MODE"], "token")
        self.assertLen(os.environ["RAY_AUTH_TOKEN"], 64)
        self.assertEqual(find_processes_listening_beyond_loopback(), [])


@unittest.skipIf(importlib.util.find_spec("ray") is None, "Ray is not installed")
class RayThatDiesTest(absltest.TestCase):
    def test_the_death_of_ray_is_reported_before_ray_ends_this_process(self):
        code = textwrap.dedent(
            """
            import os, pathlib, signal, sys
            from tests.tf_placer.search.distributed.waiting_worker import WaitingWorker
            from tf_placer.search.distributed.ray_backend import RayBackend, connect_to_ray
            from tf_placer.search.distributed.workers import Workers
            workers = Workers("ray", 1)
            with connect_to_ray(workers):
                import ray
                backend = RayBackend(workers, WaitingWorker, 0.05, sys.argv[1])
                worker = backend.start()
                backend.result(backend.call(worker, "begin", 1.0))
                call = backend.call(worker, "begin", 1.0)
                assert backend.wait([call], 60.0) == [call]
                os.kill(ray._private.worker._global_node.all_processes["raylet"][0].process.pid, 9)
                try:
                    while True:
                        backend.wait([call], 0.05)
                finally:
                    backend.close()
            """
        )
        done = subprocess.run(
            [sys.executable, "-c", code, self.create_tempdir().full_path + "/log"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr.splitlines()[-1], "SearchError: Ray has died on this computer")


def find_processes_listening_beyond_loopback() -> list[str]:
    """Finds the command lines of Ray's processes that listen beyond the loopback interface."""
    sockets = {}
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            address = local.partition(":")[0]
            loopback = ("0100007F", "0" * 24 + "01000000", "0000000000000000FFFF00000100007F")
            if state == "0A" and address not in loopback:
                sockets[f"socket:[{rest[5]}]"] = local
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            links = [os.readlink(each) for each in (process / "fd").iterdir()]
        except OSError:
            continue
        mine = "tfp_ray_" in command
        found += [f"{sockets[each]} {command[:80]}" for each in links if each in sockets and mine]
    return found


if __name__ == "__main__":
    absltest.main()
