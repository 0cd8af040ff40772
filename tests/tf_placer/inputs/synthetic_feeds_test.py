"""Tests of checking feeds and making up missing ones."""

from __future__ import annotations

import warnings

import numpy as np
import tensorflow as tf

from graph_passes.errors import StepError
from graph_passes.op_graph import OpGraph
from tests.graph_parts import new_graph
from tf_placer.inputs.synthetic_feeds import complete_feeds

tf1 = tf.compat.v1


def placeholders(*types_and_shapes) -> OpGraph:
    """A graph whose step reads placeholders "p0", "p1", ..."""
    with new_graph() as graph:
        for number, (dtype, shape) in enumerate(types_and_shapes):
            tf1.placeholder(dtype, shape, name=f"p{number}")
        tf1.placeholder(tf.float32, [1], name="unused")
        with tf.control_dependencies([graph.get_operation_by_name("p0")]):
            tf.group(
                *(graph.get_operation_by_name(f"p{n}") for n in range(len(types_and_shapes))),
                name="y",
            )
    return OpGraph.from_graph_def(graph.as_graph_def(), ["y"])


class MadeUpFeedsTest(tf.test.TestCase):
    def test_values_have_the_types_and_shapes_of_their_placeholders(self):
        types = [
            *(tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.complex64, tf.int32, tf.int64),
            *(tf.uint8, tf.bool, tf.string, tf.qint8),
        ]
        graph = placeholders(*((dtype, [2, 3]) for dtype in types))
        feeds = complete_feeds(graph, {})
        self.assertEqual(sorted(feeds), sorted(f"p{n}:0" for n in range(len(types))))
        for number, dtype in enumerate(types):
            value = feeds[f"p{number}:0"]
            self.assertEqual(value.shape, (2, 3))
            self.assertEqual(value.dtype, np.dtype(dtype.as_numpy_dtype), dtype)
            if dtype.is_floating or dtype.is_complex:
                self.assertGreater(len(np.unique(value.astype(np.complex64))), 3, dtype)
            elif dtype == tf.string:
                self.assertEqual(set(value.flat), {b""})
            else:
                self.assertFalse(np.any(value.astype(np.int8)), dtype)

    def test_a_placeholder_too_large_to_make_up_is_named(self):
        for shape in ([2**16, 2**14], [2**31, 2**30]):
            graph = placeholders((tf.float32, shape))
            with self.assertRaisesRegex(StepError, "'p0:0' has the shape .* pass one in feed_dict"):
                complete_feeds(graph, {})

    def test_values_depend_on_the_seed_and_not_on_other_feeds(self):
        one, two = placeholders((tf.float32, [4])), placeholders(*[(tf.float32, [4])] * 2)
        feeds = complete_feeds(two, {}, seed=1)
        self.assertAllEqual(feeds["p0:0"], complete_feeds(one, {}, seed=1)["p0:0"])
        self.assertNotAllEqual(feeds["p0:0"], feeds["p1:0"])
        self.assertNotAllEqual(feeds["p0:0"], complete_feeds(one, {}, seed=2)["p0:0"])

    def test_a_scalar_and_an_empty_tensor_can_be_made(self):
        feeds = complete_feeds(placeholders((tf.float32, []), (tf.int32, [0, 2])), {})
        self.assertEqual(feeds["p0:0"].shape, ())
        self.assertEqual(feeds["p1:0"].shape, (0, 2))

    def test_a_placeholder_without_a_full_shape_is_named(self):
        with self.assertRaisesRegex(StepError, r"'p0:0' has the shape \[\?, 3\].* pass one in"):
            complete_feeds(placeholders((tf.float32, [None, 3])), {})
        with self.assertRaisesRegex(StepError, "'p0:0' has the shape unknown"):
            complete_feeds(placeholders((tf.float32, None)), {})

    def test_a_placeholder_of_handles_is_named(self):
        for dtype in (tf.resource, tf.variant):
            with self.assertRaisesRegex(
                StepError, "'p0:0' stands for a handle, which cannot be fed"
            ):
                complete_feeds(placeholders((dtype, [])), {})

    def test_default_values_need_no_feed(self):
        with new_graph() as graph:
            default = tf1.placeholder_with_default(1.0, [], name="p")
            tf.identity(default, name="y")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["y"])
        self.assertEqual(complete_feeds(op_graph, {}), {})


class GivenFeedsTest(tf.test.TestCase):
    def test_converts_given_feeds_and_makes_up_the_others(self):
        graph = placeholders((tf.float32, [None]), (tf.int32, [1]))
        feeds = complete_feeds(graph, {"p0:0": [1, 2]})
        self.assertAllEqual(feeds["p0:0"], np.float32([1, 2]))
        self.assertEqual(feeds["p0:0"].dtype, np.float32)
        self.assertAllEqual(feeds["p1:0"], [0])

    def test_strings_of_all_kinds_are_taken(self):
        graph = placeholders((tf.string, [2]))
        for value in (["a", "b"], [b"a", b"b"], np.array(["a", "b"]), np.array([b"a", b"b"])):
            self.assertEqual(complete_feeds(graph, {"p0:0": value})["p0:0"].dtype, np.object_)

    def test_a_wrong_shape_is_named(self):
        graph = placeholders((tf.float32, [None, 3]))
        for value in (np.zeros([2, 4]), np.zeros(3)):
            with self.assertRaisesRegex(StepError, r"'p0:0' has the shape \[.*tensor \[\?, 3\]"):
                complete_feeds(graph, {"p0:0": value})

    def test_a_wrong_type_is_named(self):
        with self.assertRaisesRegex(StepError, "'p0:0' is not of type int32"):
            complete_feeds(placeholders((tf.int32, [])), {"p0:0": "many"})
        with self.assertRaisesRegex(StepError, "'p0:0' is not of strings"):
            complete_feeds(placeholders((tf.string, [1])), {"p0:0": [1]})
        with self.assertRaisesRegex(StepError, "'p0:0' is a handle"):
            complete_feeds(placeholders((tf.resource, [])), {"p0:0": 1})

    def test_values_that_the_type_cannot_hold_are_refused_and_not_cast(self):
        for dtype, values in (
            (tf.int32, (0.5, np.nan, np.inf, 2**40, -(2**31) - 1, 10**30, 1 + 2j, "1", b"1")),
            (tf.int32, (np.array([1, 2**40]), np.array([0.25], np.float32))),
            (tf.uint8, (-1, 256, 0.1)),
            (tf.bool, (2, 0.5, "True")),
            (tf.float32, (1e39, 1j, "0.5", [1.0, 1e39])),
            (tf.float16, (1e6,)),
            (tf.bfloat16, (1e39,)),
        ):
            for value in values:
                with self.assertRaisesRegex(
                    StepError, "the feed of 'p0:0' is not of type .*: it has"
                ):
                    complete_feeds(placeholders((dtype, None)), {"p0:0": value})

    def test_refused_values_cause_no_numpy_warnings(self):
        with warnings.catch_warnings(), self.assertRaisesRegex(StepError, r"it has 1j, which"):
            warnings.simplefilter("error")
            complete_feeds(placeholders((tf.float32, None)), {"p0:0": 1j})

    def test_values_that_the_type_can_hold_are_taken(self):
        for dtype, value, expected in (
            (tf.int32, 2.0, 2),
            (tf.int64, np.uint8([3]), [3]),
            (tf.bool, [0, 1], [False, True]),
            (tf.float32, 0.1, np.float32(0.1)),
            (tf.float32, [np.nan, np.inf, -np.inf], [np.nan, np.inf, -np.inf]),
            (tf.float32, np.array([2**24], np.int64), [2.0**24]),
            (tf.complex64, 1 + 2j, 1 + 2j),
            (tf.bfloat16, 0.5, 0.5),
            (tf.float32, [], []),
        ):
            fed = complete_feeds(placeholders((dtype, None)), {"p0:0": value})["p0:0"]
            self.assertEqual(fed.dtype, np.dtype(dtype.as_numpy_dtype))
            np.testing.assert_array_equal(fed, np.asarray(expected, fed.dtype))

    def test_ragged_values_are_named(self):
        with self.assertRaisesRegex(StepError, "'p0:0' is not of type"):
            complete_feeds(placeholders((tf.float32, None)), {"p0:0": [[1], [1, 2]]})

    def test_a_tensor_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(StepError, "no tensor 'q:0'"):
            complete_feeds(placeholders((tf.float32, [])), {"q:0": 1})


if __name__ == "__main__":
    tf.test.main()
