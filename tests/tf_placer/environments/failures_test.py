"""Tests of telling failures apart, on messages recorded from TensorFlow 2.14 and 2.21."""

from __future__ import annotations

from unittest import mock

from absl.testing import absltest, parameterized

from tf_placer.environments.environment import FailureKind
from tf_placer.environments.failures import (
    classify_death,
    classify_error,
    count_oom_kills,
    may_have_harmed,
    shorten,
)
from tf_placer.processes import ChildDied, ChildProcess

_DETECTED = """Graph execution error:

Detected at node 'Square' defined at (most recent call last):
    File "/a/q.py", line 62, in <module>
    File "/a/q.py", line 41, in attempt
Node: 'Square'
"""
_PYTHON_FUNCTION = """Graph execution error:

Detected at node 'y' defined at (most recent call last):
Node: 'y'
ValueError: Could not find callback with key=pyfunc_0 in the registry.
Traceback (most recent call last):

  File "/site-packages/tensorflow/python/ops/script_ops.py", line 257, in __call__
    raise ValueError(f"Could not find callback with key={token} in the "

ValueError: Could not find callback with key=pyfunc_0 in the registry.


\t [[{{node y}}]]"""
_UNKNOWN_DEVICE = (
    _DETECTED
    + """Cannot assign a device for operation Square: {{node Square}} was explicitly assigned to \
/job:worker/task:7/device:CPU:0 but available devices are [ \
/job:worker/replica:0/task:0/device:CPU:0 ]. Make sure the device specification refers to a valid \
device.
\t [[Square]]"""
)
_RESOURCES = """Graph execution error:

Cannot place the graph because a reference or resource edge connects colocation groups with \
incompatible resource devices: /job:worker/replica:0/task:1/device:CPU:0 vs \
/job:worker/replica:0/task:0/device:CPU:0. The edge src node is name='w' (op='VarHandleOp')."""
_COLOCATION = """Cannot colocate nodes {{colocation_node add}} and {{colocation_node Const}}: \
Cannot merge devices with incompatible tasks: '/job:worker/replica:0/task:1/device:CPU:0' and \
'/job:worker/replica:0/task:0/device:CPU:0'"""
_OOM = (
    _DETECTED
    + """From /job:worker/replica:0/task:0:
OOM when allocating tensor with shape[1048576,262144] and type float on \
/job:worker/replica:0/task:0/device:CPU:0 by allocator mklcpu
\t [[{{node random_uniform/RandomUniform}}]]
Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor

Original stack trace for 'random_uniform/RandomUniform':
  File "/a/q.py", line 77, in <module>"""
)
_END = (
    _DETECTED
    + """From /job:worker/replica:0/task:0:
End of sequence
\t [[{{node IteratorGetNext}}]]

Original stack trace for 'IteratorGetNext':"""
)
_UNINITIALIZED = (
    _DETECTED
    + """From /job:worker/replica:0/task:0:
Could not find variable v. This could mean that the variable has been deleted. In TF1, it can also \
mean the variable is uninitialized.
\t [[{{node Read/ReadVariableOp}}]]"""
)
_RESHAPE = (
    _DETECTED
    + """2 root error(s) found.
  (0) INVALID_ARGUMENT: Input to reshape is a tensor with 4 values, but the requested shape has 3
\t [[{{node Reshape}}]]
0 successful operations.
0 derived errors ignored."""
)
_SOCKET = """Graph execution error:

=====================
UNAVAILABLE: From /job:worker/replica:0/task:1:
Socket closed
Additional GRPC error information from remote target /job:worker/replica:0/task:1 while calling:
:UNKNOWN:Error received from peer  {grpc_status:14, grpc_message:"Socket closed"}"""


class FailureOfErrorTest(parameterized.TestCase):
    @parameterized.parameters(
        ("InvalidArgumentError", _UNKNOWN_DEVICE, FailureKind.INVALID_PLACEMENT),
        ("InvalidArgumentError", _RESOURCES, FailureKind.INVALID_PLACEMENT),
        ("InvalidArgumentError", _COLOCATION, FailureKind.INVALID_PLACEMENT),
        (
            "NotFoundError",
            "No registered 'Where' OpKernel for 'GPU' devices compatible with node {{node Where}}",
            FailureKind.INVALID_PLACEMENT,
        ),
        ("ResourceExhaustedError", _OOM, FailureKind.OUT_OF_MEMORY),
        ("MemoryError", "", FailureKind.OUT_OF_MEMORY),
        ("InternalError", "Dst tensor is not initialized.", FailureKind.OUT_OF_MEMORY),
        (
            "InvalidArgumentError",
            "Invalid TensorProto for feed value 13",
            FailureKind.OUT_OF_MEMORY,
        ),
        ("DeadlineExceededError", "Deadline Exceeded", FailureKind.TIMEOUT),
        ("UnavailableError", _SOCKET, FailureKind.WORKER_DIED),
        (
            "AbortedError",
            'Session handle is not found. Possibly this worker ("/job:a/task:1") just restarted.',
            FailureKind.WORKER_DIED,
        ),
        ("AbortedError", "Session 1252ee7045b5f74c is not found.", FailureKind.WORKER_DIED),
        ("AbortedError", "something else", FailureKind.RUNTIME_ERROR),
        ("OutOfRangeError", _END, FailureKind.RUNTIME_ERROR),
        ("FailedPreconditionError", _UNINITIALIZED, FailureKind.RUNTIME_ERROR),
        ("InvalidArgumentError", _RESHAPE, FailureKind.RUNTIME_ERROR),
        ("InternalError", "something else", FailureKind.RUNTIME_ERROR),
    )
    def test_the_kind(self, error_type, message, kind):
        failure = classify_error(error_type, message, "the counted steps", 3)
        self.assertEqual(failure.kind, kind)

    def test_the_end_of_input_says_after_how_many_steps(self):
        failure = classify_error("OutOfRangeError", _END, "the counted steps", 3)
        self.assertIn("the input ended after 3 steps", failure.message)

    def test_a_missing_value_says_what_to_pass(self):
        failure = classify_error("FailedPreconditionError", _UNINITIALIZED, "the warm-up steps", 0)
        self.assertIn("pass initializers=", failure.message)
        self.assertIn("Could not find variable v", failure.message)

    def test_a_python_function_is_explained(self):
        failure = classify_error("InvalidArgumentError", _PYTHON_FUNCTION, "steps", 0)
        self.assertStartsWith(
            failure.message,
            "in steps: ValueError: Could not find callback with key=pyfunc_0 in the registry; a "
            "Python function",
        )
        self.assertIn("exists only in the process that made the graph", failure.message)

    def test_other_errors_keep_their_class_and_stage(self):
        failure = classify_error("InternalError", "something else", "the initializers", 0)
        self.assertEqual(failure.message, "in the initializers: InternalError: something else")


class ShortenTest(absltest.TestCase):
    def test_where_several_errors_are_listed_behind_python_stacks_they_are_kept(self):
        message = (
            "Graph execution error:\n\n"
            "Detected at node 'hidden' defined at (most recent call last):\n"
            '  File "train.py", line 3, in <module>\n'
            "Node: 'hidden'\n2 root error(s) found.\n"
            "  (0) RESOURCE_EXHAUSTED: OOM when allocating tensor\n\t [[{{node hidden}}]]\n"
            "Hint: add report_tensor_allocations_upon_oom\n\n"
            "  (1) RESOURCE_EXHAUSTED: OOM when allocating tensor\n\t [[{{node hidden}}]]\n"
            "0 successful operations.\n0 derived errors ignored.\n"
        )
        self.assertEqual(
            shorten(message), "RESOURCE_EXHAUSTED: OOM when allocating tensor (operation hidden)"
        )

    def test_traces_go_and_the_sentence_stays(self):
        self.assertEqual(
            shorten(_OOM),
            "From /job:worker/replica:0/task:0: OOM when allocating tensor with "
            "shape[1048576,262144] and type float on /job:worker/replica:0/task:0/device:CPU:0 by "
            "allocator mklcpu (operation random_uniform/RandomUniform)",
        )

    def test_the_operation_is_named_once(self):
        self.assertEqual(
            shorten("{{node a}} was bad\n\t [[{{node a}}]]"),
            "a was bad",
        )

    def test_several_root_errors_keep_their_sentence(self):
        self.assertIn("Input to reshape is a tensor with 4 values", shorten(_RESHAPE))

    def test_a_line_of_a_log_keeps_what_it_says(self):
        for line in (
            "2026-11-20 12:58:29.163245: W tensorflow/tsl/framework/bfc_allocator.cc:485] ",
            "W0000 00:00:1795179405.423548    8029 bfc_allocator.cc:502] ",
            "2026-11-20 12:58:29.1: W x/y/op_kernel.cc:1839] OP_REQUIRES failed at a.cc:175 : ",
        ):
            self.assertEqual(shorten(line + "ran out of memory"), "ran out of memory")

    def test_long_messages_are_cut(self):
        self.assertLess(len(shorten("word " * 10_000)), 600)

    def test_a_message_of_noise_alone_is_kept(self):
        self.assertEqual(shorten("Node: 'a'"), "Node: 'a'")

    def test_nothing_stays_nothing(self):
        self.assertEqual(shorten(""), "")


class HarmTest(parameterized.TestCase):
    @parameterized.parameters(
        ("InvalidArgumentError", _COLOCATION, False),
        ("InvalidArgumentError", _RESHAPE, False),
        ("OutOfRangeError", _END, False),
        ("InternalError", "something else", True),
        ("ResourceExhaustedError", _OOM, True),
        ("DeadlineExceededError", "Deadline Exceeded", True),
    )
    def test_processes_are_kept_where_the_graph_alone_is_to_blame(self, error_type, message, harm):
        failure = classify_error(error_type, message, "the counted steps", 0)
        self.assertEqual(may_have_harmed(failure, error_type), harm)


class FailureOfDeathTest(parameterized.TestCase):
    @parameterized.parameters(
        (-9, "", 0, FailureKind.WORKER_DIED),
        (-9, "", 1, FailureKind.OUT_OF_MEMORY),
        (-11, "", 1, FailureKind.WORKER_DIED),
        (-6, "what(): std::bad_alloc", 0, FailureKind.OUT_OF_MEMORY),
        (-11, "Allocator (bfc_cpu) ran out of memory trying", 0, FailureKind.OUT_OF_MEMORY),
        (1, "Traceback", 0, FailureKind.WORKER_DIED),
    )
    def test_signs_of_missing_memory(self, exit_code, tail, oom_kills, kind):
        child = mock.create_autospec(ChildProcess, instance=True, exit_code=exit_code)
        child.exit_description.return_value = "task 1 was killed"
        child.log_lines.return_value = ["first words", tail]
        child.log_tail.return_value = tail
        failure = classify_death(ChildDied(child), "the counted steps", oom_kills)
        self.assertEqual(failure.kind, kind)
        self.assertStartsWith(failure.message, "in the counted steps, task 1 was killed")
        self.assertIn(tail, failure.message)

    def test_the_kernel_counts(self):
        self.assertGreaterEqual(count_oom_kills(), 0)


if __name__ == "__main__":
    absltest.main()
