"""Tests of summing up traces, on traces made by hand."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.framework import step_stats_pb2

from tf_placer.environments.step_stats import summarize_traces

_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
_GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
# DataType values; 97 is none.
_FLOAT, _STRING, _BOOL, _HALF, _RESOURCE, _REF = 1, 7, 10, 19, 20, 100


def _node(name: str, nanos: int, *, start: int = 100, label: str = "", temp: int = 0, outputs=()):
    """Builds the record of an operation by an executor; `outputs`: (number, DataType, shape)."""
    node = step_stats_pb2.NodeExecStats(
        node_name=name,
        op_start_rel_nanos=start,
        op_end_rel_nanos=start + nanos,
        # The clean-up after the operation is not its own.
        all_end_rel_nanos=start + nanos + 10**9,
        timeline_label=label or f"{name} = Some(x)",
    )
    node.memory_stats.temp_memory_size = temp
    for slot, dtype, shape in outputs:
        output = node.output.add(slot=slot)
        output.tensor_description.dtype = dtype
        for size in shape:
            output.tensor_description.shape.dim.add(size=size)
    return node


def _kernel(name: str, micros: int):
    """Builds the record of a GPU kernel, in whole microseconds."""
    return step_stats_pb2.NodeExecStats(
        node_name=name, op_end_rel_micros=micros, all_end_rel_micros=micros
    )


def _step(*lines) -> step_stats_pb2.StepStats:
    """A traced step; a line is a device and what it did."""
    return step_stats_pb2.StepStats(
        dev_stats=[
            step_stats_pb2.DeviceStepStats(device=device, node_stats=nodes)
            for device, nodes in lines
        ]
    )


class SummarizeTest(tf.test.TestCase):
    def test_an_operation_takes_the_median_of_the_steps(self):
        steps = [_step((_CPU, [_node("x", nanos)])) for nanos in (3000, 90_000, 1000)]
        self.assertEqual(
            summarize_traces(steps),
            {"x": {"compute_secs": 3e-6, "runs": 1, "temp_bytes": 0, "output_bytes": {}}},
        )

    def test_a_step_without_an_operation_counts_for_it(self):
        ran, idle = (_step((_CPU, nodes)) for nodes in ([_node("x", 5000)], []))
        self.assertEqual(summarize_traces([ran, idle, idle])["x"]["compute_secs"], 0.0)
        self.assertEqual(summarize_traces([ran, ran, idle])["x"]["compute_secs"], 5e-6)
        # The median of an even number of steps lies between two, but the number of runs is whole.
        self.assertEqual(summarize_traces([ran, idle])["x"]["compute_secs"], 2.5e-6)
        self.assertEqual(summarize_traces([ran, idle])["x"]["runs"], 1)

    def test_the_runs_of_a_loop_add_up(self):
        steps = [
            _step((_CPU, [_node("while/add", 1000 * (k + 1)) for k in range(count)]))
            for count in (3, 3, 4)
        ]
        summary = summarize_traces(steps)["while/add"]
        self.assertAlmostEqual(summary["compute_secs"], 6e-6)
        self.assertEqual(summary["runs"], 3)

    def test_memory_is_the_most_of_all_runs_and_steps(self):
        steps = [
            _step((_CPU, [_node("x", 1, temp=t, outputs=[(0, _FLOAT, (n, 3))])]))
            for t, n in ((10, 2), (40, 1), (20, 5))
        ]
        summary = summarize_traces(steps)["x"]
        self.assertEqual(summary["temp_bytes"], 40)
        self.assertEqual(summary["output_bytes"], {0: 5 * 3 * 4})

    def test_outputs_have_numbers_and_types(self):
        outputs = [
            *((0, _FLOAT, ()), (2, _HALF + _REF, (4,)), (3, _STRING, (7,)), (4, _RESOURCE, ())),
            *((5, 0, ()), (6, _FLOAT, (0, 9)), (7, _STRING + _REF, ()), (8, 97, (2,))),
            (9, _BOOL, (3,)),
        ]
        step = _step((_CPU, [_node("x", 1, outputs=outputs)]))
        # Strings, handles and what was never written have no size that is known.
        sizes = summarize_traces([step])["x"]["output_bytes"]
        self.assertEqual(sizes, {0: 4, 2: 8, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0, 8: 0, 9: 3})

    def test_a_folded_constant_counts_for_its_operation(self):
        nodes = [
            _node("scope/x/_42__cf__42", 1000, outputs=[(0, _FLOAT, (5,))]),
            _node("scope/x/_43__cf__43", 2000, outputs=[(0, _FLOAT, (9,))]),
            _node("scope/x__cf__7", 500),
        ]
        summary = summarize_traces([_step((_CPU, nodes))])
        self.assertEqual(list(summary), ["scope/x", "scope/x__cf__7"])
        self.assertAlmostEqual(summary["scope/x"]["compute_secs"], 3e-6)
        # The name of a constant does not tell which output it replaces.
        self.assertEqual(summary["scope/x"]["output_bytes"], {})

    def test_devices_and_what_is_between_them(self):
        nodes = [
            _node("_SOURCE", 50),
            _node("x/_27", 5000, label="x/_27 = _Send(edge_12_x @/job:worker)"),
            _node("y/_29", 5000, label="[CPU 4B] y/_29 = _HostRecv(edge_13_y @/job:worker)"),
            _node("y/_31", 7000, label="y/_31 = Some(_Send)"),
        ]
        step = _step((_CPU, [_node("x", 1000), *nodes]), (_GPU, [_node("y", 2000)]))
        secs = {name: value["compute_secs"] for name, value in summarize_traces([step]).items()}
        self.assertEqual(secs, {"x": 1e-6, "y/_31": 7e-6, "y": 2e-6})

    def test_on_a_gpu_kernels_count_and_launches_only_without_kernels(self):
        step = _step(
            (_GPU, [_node("a/MatMul", 9000, temp=64), _node("shape", 800), _node("b", 300)]),
            ("/device:GPU:0/stream:all", [_kernel("a/MatMul:MatMul", 30), _kernel("b:Add", 4)]),
            ("/device:GPU:0/stream:16", [_kernel("a/MatMul:MatMul", 30)]),
            ("/device:GPU:0/stream:all", [_kernel("a/MatMul:MatMul", 12), _kernel("set", 9)]),
            ("/device:GPU:0/stream:17<MemcpyH2D>", [_kernel("shape:Shape", 50)]),
            ("/device:GPU:0/stream:", [_kernel("b:Add", 70)]),
            ("/device:GPU:0/memcpy", [_kernel("shape:Shape", 50)]),
            ("/device:GPU:0/sync", [_kernel("cuStreamSynchronize", 99)]),
        )
        summary = summarize_traces([step])
        self.assertCountEqual(summary, ["a/MatMul", "shape", "b"])
        self.assertAlmostEqual(summary["a/MatMul"]["compute_secs"], 42e-6)
        self.assertAlmostEqual(summary["b"]["compute_secs"], 4e-6)
        self.assertAlmostEqual(summary["shape"]["compute_secs"], 0.8e-6)
        self.assertEqual(summary["a/MatMul"]["temp_bytes"], 64)
        self.assertEqual({value["runs"] for value in summary.values()}, {1})

    def test_a_trace_of_nothing_says_nothing(self):
        self.assertEqual(summarize_traces([]), {})
        self.assertEqual(summarize_traces([step_stats_pb2.StepStats()]), {})

    def test_a_real_step_is_summed_up(self):
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
            y = tf.matmul(x, tf.ones([8, 4]), name="y")
            tf.reduce_sum(y, name="z")
            tf.square(y, name="not_needed")
        options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
        metadata = tf.compat.v1.RunMetadata()
        config = tf.compat.v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run("z:0", {"x:0": [[1.0] * 8] * 3}, options, metadata)
        summary = summarize_traces([metadata.step_stats])
        self.assertContainsSubset(["y", "z"], list(summary))
        self.assertNotIn("not_needed", summary)
        self.assertEqual(summary["y"]["output_bytes"], {0: 3 * 4 * 4})
        self.assertGreater(summary["y"]["compute_secs"], 0.0)


if __name__ == "__main__":
    tf.test.main()
