"""Tests of file descriptors, without TensorFlow."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
import textwrap

from absl.testing import absltest

from tf_placer.descriptors import wait_until_readable, wait_until_writable


class WaitingTest(absltest.TestCase):
    def pipe(self) -> tuple[int, int]:
        """A pipe whose ends have numbers that `select` does not take."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 2000:
            self.skipTest(f"no process can have more than {hard} open files here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        ends = []
        for low in os.pipe():
            ends.append(fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1500))
            os.close(low)
        return ends[0], ends[1]

    def test_a_descriptor_beyond_1024_is_waited_for(self):
        read, write = self.pipe()
        self.assertFalse(wait_until_readable(read, 0.0))
        self.assertTrue(wait_until_writable(write, 0.0))
        os.write(write, b"x" * 65536)
        self.assertFalse(wait_until_writable(write, 0.001))
        self.assertTrue(wait_until_readable(read, 60.0))
        os.read(read, 65536)
        os.close(write)
        self.assertTrue(wait_until_readable(read, 60.0), "the end can be read")
        os.close(read)

    def test_a_closed_reader_ends_the_wait(self):
        read, write = self.pipe()
        os.set_blocking(write, False)
        os.write(write, b"x" * 65536)
        os.close(read)
        self.assertTrue(wait_until_writable(write, 60.0))
        os.close(write)


class OpenStandardFilesTest(absltest.TestCase):
    def test_opens_closed_standard_streams_only(self):
        code = """
            import os
            from tf_placer.descriptors import open_standard_files
            open_standard_files()
            numbers = [os.dup(0)]
            numbers.append(os.pipe()[0])
            files = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
            os.write(2, repr((min(numbers), files[:2], os.get_inheritable(1))).encode())
        """
        done = subprocess.run(
            ["sh", "-c", '"$0" -c "$1" <&- >&-', sys.executable, textwrap.dedent(code)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
        )
        self.assertEqual(done.stderr, b"(3, ['/dev/null', '/dev/null'], True)")


if __name__ == "__main__":
    absltest.main()
