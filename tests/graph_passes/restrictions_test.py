"""Tests of pins and of what is kept together, as users write them."""

from __future__ import annotations

from absl.testing import absltest, parameterized

from graph_passes.errors import GraphError
from graph_passes.restrictions import (
    check_keep_together,
    check_pins,
    match_names,
    resolve_restrictions,
    suggest_names,
)

NAMES = ["embedding/w", "embedding/w/read", "tower/embedding/w", "softmax/Embedding"]
LOCAL = [f"/job:localhost/replica:0/task:0/device:{name}" for name in ("CPU:0", "GPU:0", "GPU:1")]
WORKERS = [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2)]


class PatternTest(parameterized.TestCase):
    @parameterized.parameters(
        ("embedding/w", [0]),
        ("embedding/*", [0, 1]),
        ("*/w", [0, 2]),
        ("*", [0, 1, 2, 3]),
        ("embedding/?", [0]),
        ("embedding", []),
        ("Embedding*", []),
        ("re:embedding", []),
        ("re:(tower/)?embedding/w", [0, 2]),
        ("re:.*[Ee]mbedding(/w)?", [0, 2, 3]),
    )
    def test_a_pattern_matches_whole_names(self, pattern, expected):
        self.assertEqual(match_names(pattern, NAMES), [NAMES[i] for i in expected])

    def test_suggestions_are_scopes_and_names_that_match_something(self):
        for pattern in ("embeding/*", "embedding", "tower", "zzz", "re:embeding/.*", "*"):
            suggested = suggest_names(pattern, NAMES)
            self.assertBetween(len(suggested), 1, 3)
            for each in suggested:
                self.assertNotEmpty(match_names(each, NAMES), f"{pattern}: {each}")
        self.assertEqual(suggest_names("embeding/*", NAMES)[0], "embedding/*")
        self.assertEqual(suggest_names("tower", NAMES)[0], "tower/*")

    @parameterized.parameters(
        (["a"], "pin maps patterns of names to devices, such as .*, unlike .*'a'"),
        ({3: "/CPU:0"}, "pin: a pattern of names is a text such as 'embedding/.*', not 3"),
        ({"": "/CPU:0"}, "a pattern of names is a text .*, not ''"),
        ({"re:": "/CPU:0"}, "a pattern of names is a text .*, not 're:'"),
        ({"re:(": "/CPU:0"}, r"pin 're:\(' is no regular expression: missing \)"),
        ({"a/*": 1}, "pin 'a/.*': a device is a text such as '/GPU:1', not 1"),
        ({"a/*": ""}, "pin 'a/.*': a device is a text"),
    )
    def test_refuses_pins(self, value, message):
        with self.assertRaisesRegex(ValueError, message):
            check_pins(value)

    @parameterized.parameters(
        ("a/*", "keep_together is a list, .*unlike 'a/"),
        (None, "keep_together is a list, .*unlike None"),
        ([3], "an item of keep_together is a pattern of names or a list of them, not 3"),
        ([[]], r"an item of keep_together .*, not \[\]"),
        ([["a", 3]], "keep_together: a pattern of names is a text .*, not 3"),
        (["re:["], r"keep_together 're:\[' is no regular expression"),
    )
    def test_refuses_sets_of_patterns(self, value, message):
        with self.assertRaisesRegex(ValueError, message):
            check_keep_together(value)

    def test_a_pattern_is_a_set_of_one(self):
        self.assertEqual(check_keep_together(["a/*", ["b", "c"]]), (("a/*",), ("b", "c")))


class ResolveTest(parameterized.TestCase):
    @parameterized.parameters(
        ("/CPU:0", LOCAL, 0),
        ("cpu:0", LOCAL, 0),
        ("GPU:1", LOCAL, 2),
        ("/device:GPU:0", LOCAL, 1),
        (LOCAL[2], LOCAL, 2),
        ("/job:worker/task:1", WORKERS, 1),
        ("/task:0/CPU:0", WORKERS, 0),
    )
    def test_a_partial_name_means_the_only_device_that_agrees(self, device, devices, expected):
        found = resolve_restrictions({"a": device}, (), devices)
        self.assertEqual(found.pin, {"a": devices[expected]})
        self.assertEqual(found.devices, tuple(devices))

    @parameterized.parameters(
        ("/CPU:0", WORKERS, "pin 'a': '/CPU:0' may be each of .*task:0.*, .*task:1.*in full"),
        ("/GPU", LOCAL, "pin 'a': '/GPU' is no name of a device, as .*: name one of .*GPU:1"),
        ("/device:GPU", LOCAL, "'/device:GPU' may be each of .*GPU:0, .*GPU:1: name one"),
        ("/GPU:2", LOCAL, "pin 'a': '/GPU:2' is not on the machine: name one of .*GPU:0, .*GPU:1"),
        ("/device:GPU", LOCAL, "name one of them in full, or all GPUs by '/GPU:.'"),
        ("/GPU:*", WORKERS, "pin 'a': '/GPU:.' is for GPUs, and the machine has none: leave it"),
        ("the big one", LOCAL, "'the big one' is no name of a device"),
    )
    def test_other_names_are_refused_with_the_devices(self, device, devices, message):
        with self.assertRaisesRegex(GraphError, message):
            resolve_restrictions({"a": device}, (), devices)

    def test_without_pins_there_are_no_restrictions(self):
        self.assertIsNone(resolve_restrictions({}, (), LOCAL))
        self.assertEqual(resolve_restrictions({}, (("a",),), LOCAL).keep_together, (("a",),))


if __name__ == "__main__":
    absltest.main()
