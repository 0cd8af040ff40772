"""Tests of the settings of workers, and of the machines that they can measure on."""

from __future__ import annotations

import importlib.util
import os
import stat
from unittest import mock

from absl.testing import absltest

from graph_passes.util.json_records import read_record
from tf_placer.errors import SearchError
from tf_placer.search.distributed.workers import (
    Workers,
    check_is_for_workers,
    find_workers,
    ray_directories,
)


class WorkersTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        # Pretend that Ray is installed.
        self.found = self.enter_context(
            mock.patch.object(importlib.util, "find_spec", return_value=object())
        )

    def test_accepts_valid_settings(self):
        self.assertIsNone(find_workers(None, None))
        self.assertEqual(find_workers("ray", 3), Workers("ray", 3))
        self.assertEqual(find_workers("auto", None), Workers("auto"))
        self.assertEqual(find_workers("ray://head:10001", 2), Workers("ray://head:10001", 2))

    def test_refuses_invalid_settings_by_name(self):
        for address in ("rays", "ray://", "ray://host", "ray://host:port", "grpc://h:1", ""):
            with self.assertRaisesRegex(ValueError, f"there are no workers '{address}'"):
                find_workers(address, None)
        with self.assertRaisesRegex(ValueError, "workers is an address such as 'ray', not 3"):
            find_workers(3, None)
        for count in (0, -1, "2", 2.5, True):
            wrong = f"num_workers is a whole number, 1 at least, not {count!r}"
            with self.assertRaisesRegex(ValueError, wrong):
                find_workers("ray", count)
        with self.assertRaisesRegex(ValueError, "num_workers is for searches with workers"):
            find_workers(None, 2)

    def test_without_ray_the_message_says_how_to_install_it(self):
        self.found.return_value = None
        with self.assertRaisesRegex(ImportError, r"pip install 'tf_placer\[ray\]'"):
            find_workers("ray", 2)
        self.assertIsNone(find_workers(None, None))

    def test_workers_need_separate_devices(self):
        workers = Workers("ray", 2)
        check_is_for_workers(workers, "local", "local:2", calls_python=False)
        check_is_for_workers(workers, "attached", "attached", calls_python=False)
        with self.assertRaisesRegex(SearchError, "which 'grpc://h:1' is not"):
            check_is_for_workers(workers, "cluster", "grpc://h:1", calls_python=False)
        with self.assertRaisesRegex(SearchError, "Python functions"):
            check_is_for_workers(workers, "attached", "attached", calls_python=True)

    def test_json_round_trip(self):
        for workers in (Workers("ray", 2), Workers("auto")):
            self.assertEqual(read_record(Workers, workers.to_json()), workers)

    def test_the_directory_of_ray_is_inside_a_private_one(self):
        with ray_directories() as (private, directory):
            self.assertEqual(os.path.dirname(directory), private)
            # Ray sets this mode.
            os.chmod(directory, 0o777)
            self.assertEqual(stat.S_IMODE(os.stat(private).st_mode), 0o700)
        self.assertFalse(os.path.exists(private))


if __name__ == "__main__":
    absltest.main()
