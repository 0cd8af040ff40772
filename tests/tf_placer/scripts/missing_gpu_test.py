"""Tests of advice on scripts that want a GPU, with errors of TensorFlow itself."""

from __future__ import annotations

import tensorflow as tf
from absl.testing import absltest

from tf_placer.scripts.missing_gpu import advise_on_missing_gpu


def catch_error(device: str, *, has_variable: bool = False) -> Exception:
    """Returns the error of a session that runs an operation on a device that is not there."""
    with tf.Graph().as_default() as graph, tf.device(device):
        total = tf.add(1.0, 2.0, name="total")
        if has_variable:
            total = tf.compat.v1.get_variable("w", [2], use_resource=True).initializer
    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    try:
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run(total)
    except tf.errors.InvalidArgumentError as error:
        return error
    raise AssertionError("nothing was raised")


class MissingGpuTest(absltest.TestCase):
    def test_a_gpu_on_a_computer_without_one_needs_soft_placement(self):
        for device in ("/gpu:0", "/device:GPU:3"):
            for has_variable in (False, True):
                advice = advise_on_missing_gpu(catch_error(device, has_variable=has_variable))
                self.assertRegex(advice, "wants a GPU, which this computer lacks: .*soft_place")

    def test_other_errors_have_no_advice(self):
        error = catch_error("/gpu:0")
        beside = str(error).replace("are [", "are [/job:localhost/replica:0/task:0/device:GPU:0, ")
        for other in (catch_error("/cpu:7"), ValueError("device:GPU:0"), ValueError(beside)):
            self.assertIsNone(advise_on_missing_gpu(other))


if __name__ == "__main__":
    absltest.main()
