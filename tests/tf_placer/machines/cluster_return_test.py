"""Tests of waiting for a cluster, with made-up servers and a made-up clock."""

from __future__ import annotations

from absl.testing import absltest

from tf_placer.machines.cluster_return import await_cluster
from tf_placer.machines.machine import Device, Machine, MachineError

_DEVICES = tuple(Device(f"/job:worker/replica:0/task:{k}/device:CPU:0", "CPU") for k in range(2))
_MACHINE = Machine("grpc://host:2222", "cluster", _DEVICES)


class AwaitClusterTest(absltest.TestCase):
    def wait(self, silent_secs: float, look_secs: float = 0.0, found=_DEVICES) -> list[str]:
        """What is said of a cluster that is silent for so long; a look that fails takes a time."""
        now_secs = [100.0]
        lines: list[str] = []

        def devices(spec: str, timeout_secs: float):
            self.assertEqual(spec, _MACHINE.spec)
            if now_secs[0] < 100.0 + silent_secs:
                now_secs[0] += min(look_secs, timeout_secs)
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

    def test_one_that_answers_is_not_spoken_of(self):
        self.assertEqual(self.wait(0.0), [])

    def test_one_that_comes_back_is_waited_for(self):
        for look_secs in (0.0, 30.0):
            told, again = self.wait(100.0, look_secs)
            self.assertIn(
                "no TensorFlow server answers at grpc://host:2222: waiting up to 3 m", told
            )
            self.assertRegex(again, r"grpc://host:2222 answers again, after (1 min|2 min)")

    def test_one_that_does_not_is_given_up(self):
        for look_secs in (0.0, 1000.0):
            with self.assertRaisesRegex(
                MachineError, "grpc://host:2222 has not come back within 3 min .*: no Tensor"
            ):
                self.wait(1e9, look_secs)
            self.assertBetween(self.waited_secs, 180.0, 215.0)

    def test_other_devices_are_named(self):
        with self.assertRaisesRegex(
            MachineError, "with other devices: .*task:0/device:CPU:0 instead of .*task:1/device"
        ):
            self.wait(5.0, found=_DEVICES[:1])

    def test_devices_that_sessions_of_the_search_do_not_see_are_no_others(self):
        more = Device("/job:worker/replica:0/task:2/device:CPU:0", "CPU")
        self.assertEqual(self.wait(0.0, found=(*_DEVICES, more)), [])


if __name__ == "__main__":
    absltest.main()
