"""Tests of waiting for a cluster, with fake servers and a fake clock."""

from __future__ import annotations

from absl.testing import absltest

from tf_placer.machines.cluster_return import await_cluster
from tf_placer.machines.machine import Device, Machine, MachineError

_DEVICES = tuple(Device(f"/job:worker/replica:0/task:{k}/device:CPU:0", "CPU") for k in range(2))
_MACHINE = Machine("grpc://host:2222", "cluster", _DEVICES)


class AwaitClusterTest(absltest.TestCase):
    def wait(self, silent_secs: float, attempt_secs: float = 0.0, found=_DEVICES) -> list[str]:
        """Waits for a cluster, and returns the reported lines.

        Args:
            silent_secs: the time until the cluster answers.
            attempt_secs: the duration of an attempt that fails.
            found: the devices of the cluster when it answers.
        """
        now_secs = [100.0]
        lines: list[str] = []

        def devices(spec: str, timeout_secs: float):
            self.assertEqual(spec, _MACHINE.spec)
            if now_secs[0] < 100.0 + silent_secs:
                now_secs[0] += min(attempt_secs, timeout_secs)
                raise MachineError("no TensorFlow server answers at grpc://host:2222")
            return found

        def sleep(secs: float) -> None:
            now_secs[0] += secs

        try:
            await_cluster(
                _MACHINE, lines.append, devices=devices, clock=lambda: now_secs[0], sleep=sleep
            )
        finally:
            self.waited_secs = now_secs[0] - 100.0
        return lines

    def test_reports_nothing_if_the_cluster_answers(self):
        self.assertEqual(self.wait(0.0), [])

    def test_waits_until_the_cluster_comes_back(self):
        for attempt_secs in (0.0, 30.0):
            waiting, answered = self.wait(100.0, attempt_secs)
            self.assertIn(
                "no TensorFlow server answers at grpc://host:2222: waiting up to 3 m", waiting
            )
            self.assertRegex(answered, r"grpc://host:2222 answers again, after (1 min|2 min)")

    def test_fails_if_the_cluster_does_not_come_back(self):
        for attempt_secs in (0.0, 1000.0):
            with self.assertRaisesRegex(
                MachineError, "grpc://host:2222 has not come back within 3 min .*: no Tensor"
            ):
                self.wait(1e9, attempt_secs)
            self.assertBetween(self.waited_secs, 180.0, 215.0)

    def test_fails_if_devices_are_missing(self):
        with self.assertRaisesRegex(
            MachineError, "with other devices: .*task:0/device:CPU:0 instead of .*task:1/device"
        ):
            self.wait(5.0, found=_DEVICES[:1])

    def test_accepts_additional_devices(self):
        more = Device("/job:worker/replica:0/task:2/device:CPU:0", "CPU")
        self.assertEqual(self.wait(0.0, found=(*_DEVICES, more)), [])


if __name__ == "__main__":
    absltest.main()
