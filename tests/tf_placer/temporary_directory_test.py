"""Tests of temporary directories."""

from __future__ import annotations

import os
import pathlib
import shutil
import stat
import subprocess
import sys
from unittest import mock

from absl.testing import absltest

from tests.tf_placer.left_behind import leave_stale_directory
from tf_placer.temporary_directory import remove_stale_directories, temporary_directory

_USER = """
import sys
from tf_placer.temporary_directory import temporary_directory
with temporary_directory(sys.argv[1]) as path:
    open(path + "/secret", "w").write("text")
    print(path, flush=True)
    sys.stdin.read()
"""


class ScratchDirectoryTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.base = self.create_tempdir().full_path

    def start_user(self) -> tuple[subprocess.Popen[str], str]:
        user = subprocess.Popen(
            [sys.executable, "-c", _USER, self.base],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for each in (user.stdin, user.stdout):
            self.addCleanup(each.close)
        self.addCleanup(user.kill)
        return user, user.stdout.readline().strip()

    def test_it_is_private_and_gone_at_the_end(self):
        with temporary_directory(self.base) as one, temporary_directory(self.base) as other:
            self.assertNotEqual(one, other)
            self.assertEqual(os.path.dirname(one), self.base)
            self.assertEqual(stat.S_IMODE(os.stat(one).st_mode), 0o700)
        self.assertEqual(os.listdir(self.base), [])

    def test_removes_directories_of_killed_processes_only(self):
        user, path = self.start_user()
        with temporary_directory(self.base):
            self.assertTrue(os.path.exists(os.path.join(path, "secret")))
        user.kill()
        user.wait()
        self.assertTrue(os.path.exists(path))
        with temporary_directory(self.base) as new:
            self.assertEqual(os.listdir(self.base), [os.path.basename(new)])

    def test_a_directory_written_to_during_removal_is_removed_later(self):
        user, path = self.start_user()
        user.kill()
        user.wait()
        remove = shutil.rmtree

        def busy(*args, **kwargs):
            remove(*args, **kwargs)
            pathlib.Path(path, "more").touch()

        pathlib.Path(path, "folder").mkdir()
        with mock.patch.object(shutil, "rmtree", side_effect=busy):
            remove_stale_directories(self.base)
        self.assertTrue(os.path.exists(path))
        remove_stale_directories(self.base)
        self.assertEqual(os.listdir(self.base), [])

    def test_removes_only_directories_with_the_prefix(self):
        with temporary_directory(self.base, prefix="short_") as path:
            self.assertStartsWith(os.path.basename(path), "short_")
        left = leave_stale_directory(self.base, "short_")
        remove_stale_directories(self.base)
        self.assertTrue(left.exists())
        remove_stale_directories(self.base, "short_")
        self.assertFalse(left.exists())

    def test_keeps_directories_of_other_users(self):
        victim = pathlib.Path(self.create_tempdir("victim").full_path)
        (victim / "lock").touch()
        link = pathlib.Path(self.base, "tf_placer_scratch_link")
        link.symlink_to(victim)
        others = leave_stale_directory(self.base)
        with (
            mock.patch.object(os, "getuid", return_value=os.getuid() + 1),
            temporary_directory(self.base),
        ):
            pass
        self.assertTrue(others.exists())
        with temporary_directory(self.base):
            pass
        self.assertFalse(others.exists())
        self.assertTrue((victim / "lock").exists())

    def test_keeps_directories_without_the_lock(self):
        for content in ("", "mine", "A directory of tf_placer"):
            theirs = pathlib.Path(self.base, "tf_placer_scratch_ab12cd34")
            theirs.mkdir(mode=0o700, exist_ok=True)
            (theirs / "lock").write_text(content)
            with temporary_directory(self.base):
                pass
            self.assertEqual((theirs / "lock").read_text(), content)


if __name__ == "__main__":
    absltest.main()
