from __future__ import annotations

from absl.testing import absltest, parameterized

from graph_passes.devices import (
    device_type_of,
    has_device,
    home_device,
    is_device_name,
    is_device_request,
)

WORKER = "/job:worker/replica:0/task:"
DEVICES = [
    f"{WORKER}0/device:CPU:0",
    f"{WORKER}0/device:GPU:0",
    f"{WORKER}1/device:CPU:0",
    f"{WORKER}1/device:GPU:0",
    f"{WORKER}1/device:GPU:1",
]


class DeviceTypeTest(parameterized.TestCase):
    @parameterized.parameters(
        ("/job:worker/replica:0/task:1/device:CPU:0", "CPU"),
        ("/device:GPU:1", "GPU"),
        ("/gpu:0", "GPU"),
        ("/cpu:*", "CPU"),
        ("/device:XLA_CPU:0", "XLA_CPU"),
        ("/job:worker/device:GPU", "GPU"),
        ("/device:gpu:0/job:worker/task:1", "GPU"),
        ("/device:*", ""),
        ("/job:worker", ""),
        ("/job:gpu/task:0", ""),
        ("/replica:0/task:12", ""),
        ("", ""),
    )
    def test_extracts_the_type(self, name, expected):
        self.assertEqual(device_type_of(name), expected)


class IsDeviceRequestTest(parameterized.TestCase):
    @parameterized.parameters(
        *("", "/", "/gpu:0", "/CPU:*", "/job:worker", "/job:*/task:1", "/device:GPU", "/device:*"),
        *("/job:worker/replica:0/task:1/device:XLA_CPU:0", "/gpu:0/job:worker"),
    )
    def test_accepts_requests(self, name):
        self.assertTrue(is_device_request(name))

    @parameterized.parameters(
        *("gpu:0", "GPU", "/gpu", "/gpu:", "/gpu:-1", "/xpu:0", "/job:worker/gpu:zero", "/job:"),
        *("/task:one", "/task:99999999999", "//", "/gpu:0\n"),
    )
    def test_rejects_invalid_requests(self, name):
        self.assertFalse(is_device_request(name))


class IsDeviceNameTest(parameterized.TestCase):
    @parameterized.parameters(
        ("/job:worker/replica:0/task:1/device:CPU:0", True),
        ("/gpu:0", True),
        ("/gpu:zero", False),
        ("/gpu:\uff10", False),  # A zero of another script.
        ("/job:w\u00f6rker/device:CPU:0", False),
        ("CPU:-1", False),
        (0, False),
    )
    def test_accepts_only_names_of_one_device(self, name, expected):
        self.assertEqual(is_device_name(name), expected)


class HomeDeviceTest(parameterized.TestCase):
    @parameterized.parameters(
        ("", 0),
        ("/cpu:0", 0),
        ("/gpu:0", 1),
        ("/device:GPU:*", 1),
        ("/device:GPU:1", 4),
        ("/job:worker/task:1", 2),
        ("/task:1/gpu:0", 3),
        ("/device:GPU:0/task:1", 3),
        ("/job:worker/replica:0/task:1/device:GPU:1", 4),
    )
    def test_takes_the_first_device_that_agrees(self, requested, expected):
        self.assertEqual(home_device(requested, DEVICES), expected)

    @parameterized.parameters(("/task:1/device:TPU:0", 2), ("/job:worker/task:1/gpu:7", 2))
    def test_falls_back_to_the_first_device_of_the_task(self, requested, expected):
        self.assertEqual(home_device(requested, DEVICES), expected)

    @parameterized.parameters("/job:ps", "/task:2/cpu:0", "/device:TPU:0", "nonsense")
    def test_falls_back_to_the_first_device(self, requested):
        self.assertEqual(home_device(requested, DEVICES), 0)


class HasDeviceTest(parameterized.TestCase):
    @parameterized.parameters(
        ("", True, True),
        ("/task:1/gpu:1", True, True),
        ("/gpu:7", False, True),
        ("/task:1/device:TPU:0", False, True),
        ("/task:2/cpu:0", False, False),
        ("/job:ps", False, False),
    )
    def test_soft_placement_compares_only_job_and_task(self, requested, hard, soft):
        self.assertEqual(has_device(requested, DEVICES), hard)
        self.assertEqual(has_device(requested, DEVICES, soft=True), soft)


if __name__ == "__main__":
    absltest.main()
