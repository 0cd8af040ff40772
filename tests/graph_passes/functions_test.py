from __future__ import annotations

import itertools

import tensorflow as tf
from absl.testing import parameterized

from graph_passes.errors import GraphError
from graph_passes.functions import FunctionLibrary, check_calls_end, copy_called_functions
from tests.function_parts import add_call, add_conditional, add_function, graph_with_call

tf1 = tf.compat.v1


def build_library(**calls: list[str]) -> tf1.GraphDef:
    """Builds functions, each with a partitioned call of every function in its list."""
    graph_def = tf1.GraphDef()
    for name, called in calls.items():
        function = graph_def.library.function.add()
        function.signature.name = name
        function.node_def.add(name="own", op="NoOp")
        for number, other in enumerate(called):
            call = function.node_def.add(name=f"call_{number}", op="PartitionedCall")
            call.attr["f"].func.name = other
    return graph_def


def make_call(name: str) -> tf1.NodeDef:
    node = tf1.NodeDef(name="call", op="StatefulPartitionedCall")
    node.attr["f"].func.name = name
    return node


class FunctionLibraryTest(tf.test.TestCase):
    def test_lists_callees_of_calls(self):
        functions = FunctionLibrary(build_library(a=["b", "c"], b=["c"], c=[], d=["a"]))
        self.assertEqual(functions.find_all_callees(make_call("a")), {"a", "b", "c"})
        self.assertEqual(functions.find_all_callees(make_call("c")), {"c"})
        self.assertEqual(functions.find_all_callees(make_call("d")), {"a", "b", "c", "d"})

    def test_function_as_an_operation_type_is_a_call(self):
        functions = FunctionLibrary(build_library(a=["b"], b=[]))
        self.assertEqual(functions.find_all_callees(tf1.NodeDef(name="call", op="a")), {"a", "b"})

    def test_lists_callees_of_recursive_functions(self):
        functions = FunctionLibrary(build_library(a=["b"], b=["a", "c"], c=["c"]))
        for name in "ab":
            self.assertEqual(functions.find_all_callees(make_call(name)), {"a", "b", "c"})
        self.assertEqual(functions.find_all_callees(make_call("c")), {"c"})

    def test_copies_called_functions_with_their_gradients(self):
        graph_def = build_library(a=["b"], b=[], c=["a"], d=["e"], e=[], f=["e"])
        graph_def.library.gradient.add(function_name="b", gradient_func="d")
        graph_def.library.gradient.add(function_name="c", gradient_func="f")
        graph_def.node.append(make_call("a"))
        called = copy_called_functions(graph_def)
        self.assertEqual([each.signature.name for each in called.function], ["a", "b", "d", "e"])
        self.assertEqual([each.function_name for each in called.gradient], ["b"])
        self.assertEqual(called.function[0], graph_def.library.function[0])

    def test_accepts_deep_nesting(self):
        names = [f"f{i}" for i in range(5000)]
        deep = {name: [inner] for name, inner in itertools.pairwise(names)}
        functions = FunctionLibrary(build_library(**deep, **{names[-1]: []}))
        self.assertLen(functions.find_all_callees(make_call("f0")), 5000)

    def test_lists_functions_of_control_flow_and_lists(self):
        functions = FunctionLibrary(build_library(a=[], b=[], c=["b"]))
        loop = tf1.NodeDef(name="loop", op="While")
        loop.attr["cond"].func.name = "a"
        loop.attr["body"].func.name = "c"
        self.assertEqual(functions.find_all_callees(loop), {"a", "b", "c"})
        case = tf1.NodeDef(name="case", op="Case")
        for name in "ab":
            case.attr["branches"].list.func.add(name=name)
        self.assertEqual(functions.find_all_callees(case), {"a", "b"})

    def test_missing_functions_are_listed_and_empty(self):
        functions = FunctionLibrary(build_library(a=["lost"]))
        self.assertEqual(functions.find_all_callees(make_call("a")), {"a", "lost"})
        self.assertIn("a", functions)
        self.assertNotIn("lost", functions)
        self.assertEmpty(functions.body("lost"))
        self.assertEqual([node.name for node in functions.body("a")], ["own", "call_0"])

    def test_plain_operations_have_no_callees(self):
        functions = FunctionLibrary(build_library(a=[]))
        self.assertEmpty(functions.find_all_callees(tf1.NodeDef(name="x", op="Identity")))


class EndlessCallsTest(tf.test.TestCase, parameterized.TestCase):
    """Tests of functions that would end TensorFlow's process; see `tests.function_parts`."""

    @parameterized.product(op=["", "PartitionedCall", "StatefulPartitionedCall"], called=["f", "g"])
    def test_error_names_recursive_functions(self, op, called):
        graph_def = graph_with_call("f")
        add_call(add_function(graph_def, "f"), called, op=op)
        add_call(add_function(graph_def, "g"), "f", op=op)
        through = {"f": "'f' calls itself, which", "g": "'f' calls itself, through 'g', which"}
        with self.assertRaisesRegex(GraphError, f"^the function {through[called]} .* never finish"):
            check_calls_end(graph_def)

    def build_recursion_in_conditional(
        self, op: str = "", *, lowered: bool = False
    ) -> tf1.GraphDef:
        graph_def = graph_with_call("f")
        add_conditional(add_function(graph_def, "f"), ["g", "h"], lowered=lowered)
        add_call(add_function(graph_def, "g"), "f", op=op)
        add_function(graph_def, "h").ret["y"] = "x"
        return graph_def

    def test_accepts_recursion_in_conditionals(self):
        check_calls_end(self.build_recursion_in_conditional())

    def test_rejects_recursion_in_conditionals_that_tensorflow_inlines(self):
        for graph_def in (
            self.build_recursion_in_conditional("PartitionedCall"),
            self.build_recursion_in_conditional(lowered=True),
        ):
            with self.assertRaisesRegex(GraphError, "^the function 'f' calls itself"):
                check_calls_end(graph_def)

    def test_ignores_unused_recursive_functions(self):
        graph_def = graph_with_call("f")
        add_function(graph_def, "f").ret["y"] = "x"
        add_call(add_function(graph_def, "unused"), "unused")
        check_calls_end(graph_def)


if __name__ == "__main__":
    tf.test.main()
