"""Which workers can be asked for, and where they can measure."""

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
        # As if Ray were installed.
        self.found = self.enter_context(
            mock.patch.object(importlib.util, "find_spec", return_value=object())
        )

    def test_what_can_be_asked_for(self):
        self.assertIsNone(find_workers(None, None))
        self.assertEqual(find_workers("ray", 3), Workers("ray", 3))
        self.assertEqual(find_workers("auto", None), Workers("auto"))
        self.assertEqual(find_workers("ray://head:10001", 2), Workers("ray://head:10001", 2))

    def test_what_cannot_is_named(self):
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

    def test_without_ray_it_is_said_how_to_get_it(self):
        self.found.return_value = None
        with self.assertRaisesRegex(ImportError, r"pip install 'tf_placer\[ray\]'"):
            find_workers("ray", 2)
        self.assertIsNone(find_workers(None, None))

    def test_workers_need_devices_of_their_own(self):
        workers = Workers("ray", 2)
        check_is_for_workers(workers, "local", "local:2", calls_python=False)
        check_is_for_workers(workers, "attached", "attached", calls_python=False)
        with self.assertRaisesRegex(SearchError, "which 'grpc://h:1' is not"):
            check_is_for_workers(workers, "cluster", "grpc://h:1", calls_python=False)
        with self.assertRaisesRegex(SearchError, "Python functions"):
            check_is_for_workers(workers, "attached", "attached", calls_python=True)

    def test_json(self):
        for workers in (Workers("ray", 2), Workers("auto")):
            self.assertEqual(read_record(Workers, workers.to_json()), workers)

    def test_the_directory_of_ray_is_in_one_that_nobody_else_enters(self):
        with ray_directories() as (private, directory):
            self.assertEqual(os.path.dirname(directory), private)
            # As Ray does.
            os.chmod(directory, 0o777)
            self.assertEqual(stat.S_IMODE(os.stat(private).st_mode), 0o700)
        self.assertFalse(os.path.exists(private))


if __name__ == "__main__":
    absltest.main()
