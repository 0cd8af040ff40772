"""Small models of public threads in which a model does not fit, or leaves devices idle.

Each is the model of a thread in small, beside a machine whose GPUs are as small. A target is a
graph, a function, a Keras model or a SavedModel, made anew with the same values each time; it can
be placed, and run as TensorFlow's users run it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

import tf_placer
from benchmarks.models import two_towers, wide_and_deep
from benchmarks.models.training import model_graph, train, training_model
from benchmarks.models.training_model import TrainingModel
from benchmarks.models.transformer import dense
from graph_passes.placement import Placement
from tf_placer.functions.placed_step import PlacedStep
from tf_placer.functions.traced_call import TracedCall, trace_call
from tf_placer.inputs.workload import Workload, read_graph, read_workload
from tf_placer.live.optimization_target import read_target
from tf_placer.machines.lookup import find_machine

__all__ = ["CASES", "MemoryCase", "Target"]

tf1 = tf.compat.v1

# TensorFlow keeps this much of a small GPU for itself.
_RESERVED_BYTES = 255 << 20
_CPU = "/device:CPU:0"


class Target(Protocol):
    """A model that can be placed, and run without and with a placement."""

    @property
    def workload(self) -> Workload:
        """The graph and the step that a search measures."""
        ...

    @property
    def variables(self) -> Mapping[str, str]:
        """Names of variables by their operation, where these say less, as of Keras' slots."""
        ...

    def optimize(self, config: tf_placer.SearchConfig) -> tf_placer.OptimizeResult:
        """Searches for a placement."""
        ...

    def run(self, steps: int, placed: tuple[str, Placement] | None) -> list[np.ndarray]:
        """Runs steps as a user would.

        Args:
            steps: number of steps.
            placed: the name of the machine and the placement; None to leave all to TensorFlow.

        Returns:
            The value of each step: its loss, or its answer.
        """
        ...


@dataclasses.dataclass(frozen=True)
class MemoryCase:
    """A case of the table.

    Attributes:
        name: for flags and files.
        thread: the thread that asks for it.
        asks: its wish, in a few words.
        make_target: makes the model; the directory may keep files of it.
        machine: a name of `find_machine`, or the memory of small GPUs in MiB, one number each.
        hand: by label, the devices that a user would write by hand, by patterns of names. What
            matches none goes to the first GPU.
        settings: settings of the search beside its machine and its time.
    """

    name: str
    thread: str
    asks: str
    make_target: Callable[[pathlib.Path], Target]
    machine: str | tuple[int, ...]
    hand: Mapping[str, Mapping[str, str]]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def name_machine(self, directory: pathlib.Path) -> str:
        """Names the machine of searches and times; writes its file if it has one."""
        if isinstance(self.machine, str):
            return self.machine
        path = directory / f"{self.name}.json"
        path.write_text(json.dumps(_describe_small_gpus(self.machine)))
        return f"emulated:{path}"


def _describe_small_gpus(sizes: Sequence[int]) -> dict[str, Any]:
    """Describes a computer with K80 of little memory, in MiB, on PCIe."""
    prefix = "/job:localhost/replica:0/task:0"
    names = [f"{prefix}{_CPU}", *(f"{prefix}/device:GPU:{n}" for n in range(len(sizes)))]
    gpus = [
        {"name": name, "class": "K80", "memory_bytes": _RESERVED_BYTES + (size << 20)}
        for name, size in zip(names[1:], sizes, strict=True)
    ]
    links = [
        {"source": a, "destination": b, "latency_secs": 25e-6, "bandwidth_bytes_per_sec": 11e9}
        for a in names
        for b in names
        if a != b
    ]
    devices = [{"name": names[0], "class": "CPU"}, *gpus]
    return {"format": 1, "name": "small", "devices": devices, "links": links}


class _GraphTarget:
    """The training graph of a model."""

    variables: Mapping[str, str] = {}

    def __init__(self, model: TrainingModel) -> None:
        self._model, self._feeds = model, next(model.feeds())
        self._fetches = [model.train_op, model.loss]
        # A search annotates the graph.
        self.workload = read_workload(model.graph, self._fetches, self._feeds, model.initializer)

    def optimize(self, config: tf_placer.SearchConfig) -> tf_placer.OptimizeResult:
        """Searches for a placement."""
        model = self._model
        return tf_placer.optimize(
            model.graph, self._fetches, self._feeds, model.initializer, config=config
        )

    def run(self, steps: int, placed: tuple[str, Placement] | None) -> list[np.ndarray]:
        """Runs steps in a session; with soft placement off if they are placed."""
        model = self._model
        with contextlib.ExitStack() as stack:
            target, config = "", tf1.ConfigProto()
            if placed is not None:
                machine = find_machine(placed[0])
                if machine.backend.starts_servers:
                    target = stack.enter_context(tf_placer.LocalCluster(machine)).target
                config.allow_soft_placement = False
                for name, device in placed[1].assignment.items():
                    model.graph.get_operation_by_name(name)._set_device(device)
            session = stack.enter_context(tf1.Session(target, model.graph, config))
            session.run(model.initializer)
            return [session.run(self._fetches, self._feeds)[1] for _ in range(steps)]


class _FunctionTarget:
    """A training step as a tf.function, whose variables begin on the CPU."""

    variables: Mapping[str, str] = {}

    def __init__(self, make: Callable[[], tuple[Any, tuple[Any, ...]]]) -> None:
        self._make = make

    @functools.cached_property
    def _made(self) -> tuple[Any, tuple[Any, ...]]:
        with tf.device(_CPU):
            return self._make()

    @functools.cached_property
    def workload(self) -> Workload:
        """The graph and the step of one call."""
        return trace_call(*self._made).workload

    def optimize(self, config: tf_placer.SearchConfig) -> tf_placer.OptimizeResult:
        """Searches for a placement."""
        return tf_placer.optimize_function(*self._made, config=config)

    def run(self, steps: int, placed: tuple[str, Placement] | None) -> list[np.ndarray]:
        """Calls the function."""
        if placed is None:
            function, arguments = self._make()
        else:
            machine, placement = find_machine(placed[0]), placed[1]
            arguments = self._made[1]
            function = PlacedStep(trace_call(*self._made), machine, placement).function
        return [np.asarray(function(*arguments)) for _ in range(steps)]


class _ModelTarget:
    """`fit` of a Keras model; where it is placed, the model is built on the CPU."""

    def __init__(self, make: Callable[[Any], tuple[Any, np.ndarray, np.ndarray]]) -> None:
        """Takes a function that makes a compiled model and a batch of it, from Keras."""
        self._make = make

    def _build(self) -> tuple[Any, tuple[np.ndarray, np.ndarray]]:
        import keras

        keras.backend.clear_session()
        keras.utils.set_random_seed(1)
        model, x, y = self._make(keras)
        model.optimizer.build(model.trainable_variables)
        return model, (x, y)

    @functools.cached_property
    def _built(self) -> tuple[Any, tuple[np.ndarray, np.ndarray]]:
        with tf.device(_CPU):
            return self._build()

    @functools.cached_property
    def workload(self) -> Workload:
        """The graph and the step of one batch."""
        return self._traced.workload

    @functools.cached_property
    def _traced(self) -> TracedCall:
        return trace_call(*self._built)

    @property
    def variables(self) -> Mapping[str, str]:
        """Names of variables by their operation: slots have the layer in theirs."""
        return {name: variable.name for name, variable in self._traced.variables.items()}

    def optimize(self, config: tf_placer.SearchConfig) -> tf_placer.OptimizeResult:
        """Searches for a placement."""
        return tf_placer.optimize_model(*self._built, config=config)

    def run(self, steps: int, placed: tuple[str, Placement] | None) -> list[np.ndarray]:
        """Fits the model to the same batch; returns the losses."""
        if placed is None:
            model, (x, y) = self._build()
        else:
            model, (x, y) = self._built
            machine, placement = find_machine(placed[0]), placed[1]
            PlacedStep(trace_call(model, (x, y)), machine, placement).apply(model)
        history = model.fit(x, y, batch_size=len(x), epochs=steps, shuffle=False, verbose=0)
        return [np.asarray(loss, np.float32) for loss in history.history["loss"]]


class _SavedModelTarget:
    """A signature of a SavedModel, whose variables are given and need no training."""

    variables: Mapping[str, str] = {}

    def __init__(
        self, directory: pathlib.Path, module: Callable[[], tf.Module], request: np.ndarray
    ) -> None:
        """Saves the model unless the directory has it.

        Args:
            directory: directory for the SavedModels.
            module: makes a module with a method `serve`, which takes and returns a tensor "x" and
                a dictionary.
            request: the argument of the signature.
        """
        self._directory, self._request = directory, request
        self._saved = directory / "saved"
        if not self._saved.exists():
            with tf.device(_CPU):
                made = module()
            spec = tf.TensorSpec([None, *request.shape[1:]], request.dtype, name="x")
            signature = tf.function(made.serve).get_concrete_function(spec)
            tf.saved_model.save(made, str(self._saved), signatures=signature)

    @functools.cached_property
    def workload(self) -> Workload:
        """The graph and the step of one request."""
        return read_target(str(self._saved), example_inputs={"x": self._request}).workload

    def optimize(self, config: tf_placer.SearchConfig) -> tf_placer.OptimizeResult:
        """Searches for a placement, and saves it."""
        return tf_placer.optimize_saved_model(
            self._saved, example_inputs={"x": self._request}, config=config
        )

    def run(self, steps: int, placed: tuple[str, Placement] | None) -> list[np.ndarray]:
        """Loads the model and serves the request."""
        if placed is None:
            loaded = tf.saved_model.load(str(self._saved))
        else:
            from tf_placer.functions.placed_signature import PlacedSignature

            directory = self._directory / "placed"
            if not directory.exists():
                signature = read_graph(str(self._saved)).signature
                assert signature is not None, f"{self._saved} has no signature"
                PlacedSignature(signature, find_machine(placed[0]), placed[1]).save(directory)
            loaded = tf_placer.load_placed(directory)
        serve, request = loaded.signatures["serving_default"], tf.constant(self._request)
        return [np.asarray(serve(x=request)["y"]) for _ in range(steps)]


def _classify_text(keras: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Builds a classifier of texts over a large vocabulary with many classes."""
    words, classes = 30_000, 12_000
    model = keras.Sequential(
        [
            keras.Input([16], dtype="int32"),
            keras.layers.Embedding(words, 64, name="embedding"),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(192, "tanh", name="hidden"),
            keras.layers.Dense(classes, name="classes"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(), loss, jit_compile=False)
    random = np.random.default_rng(0)
    x = random.integers(0, words, [64, 16]).astype(np.int32)
    return model, x, random.integers(0, classes, 64)


def _stack_dense(keras: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Builds eight dense blocks, which share four GPUs by hand in the thread."""
    layers = [keras.layers.Dense(768, "relu", name=f"block_{n}") for n in range(8)]
    model = keras.Sequential([keras.Input([768]), *layers, keras.layers.Dense(1, name="last")])
    model.compile(keras.optimizers.Adam(), "mse", jit_compile=False)
    random = np.random.default_rng(0)
    x = random.normal(size=[512, 768]).astype(np.float32)
    return model, x, random.normal(size=[512, 1]).astype(np.float32)


def _train_on_tables() -> tuple[Any, tuple[Any, ...]]:
    """Builds a training step over two tables, with sparse updates by hand."""
    rows, units = 100_000, 64
    random = np.random.default_rng(0)

    def make(shape: list[int], name: str) -> tf.Variable:
        return tf.Variable(random.normal(0, 0.05, shape).astype(np.float32), name=name)

    tables = [make([rows, units], f"table_{n}") for n in range(2)]
    layers = [make([2 * units if n == 0 else 1024, 1024], f"layer_{n}") for n in range(3)]

    @tf.function
    def train_step(rows_of_batch: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            found = []
            for n, table in enumerate(tables):
                with tf.name_scope(f"table_{n}"):
                    found.append(tf.gather(table, rows_of_batch[n]))
            value = tf.concat(found, axis=1)
            for n, weights in enumerate(layers):
                with tf.name_scope(f"layer_{n}"):
                    value = tf.tanh(value @ weights)
            loss = tf.reduce_mean((tf.reduce_mean(value, axis=1) - target) ** 2)
        gradients = tape.gradient(loss, [*tables, *layers])
        for n, (table, gradient) in enumerate(zip(tables, gradients[:2], strict=True)):
            with tf.name_scope(f"table_{n}"):
                table.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
        for weights, gradient in zip(layers, gradients[2:], strict=True):
            weights.assign_sub(0.1 * gradient)
        return loss

    batch = random.integers(0, rows, [2, 1024]).astype(np.int32)
    return train_step, (batch, random.normal(size=1024).astype(np.float32))


class _DenseBlocks(tf.Module):
    """Layers that serve one after the other."""

    def __init__(self, size: int, count: int) -> None:
        super().__init__()
        random = np.random.default_rng(0)
        self.layers = [
            tf.Variable(random.normal(0, size**-0.5, [size, size]).astype(np.float32))
            for _ in range(count)
        ]

    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Serves a request, float32 [rows, size]."""
        for n, weights in enumerate(self.layers):
            with tf.name_scope(f"block_{n}"):
                x = tf.tanh(x @ weights)
        return {"y": x}


class _TwoBranches(_DenseBlocks):
    """Two chains of layers over the same request."""

    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Serves a request, float32 [rows, size]."""
        half, ends = len(self.layers) // 2, []
        for branch in range(2):
            value = x
            for n, weights in enumerate(self.layers[branch * half : (branch + 1) * half]):
                with tf.name_scope(f"branch_{branch}_{n}"):
                    value = tf.tanh(value @ weights)
            ends.append(value)
        return {"y": ends[0] * ends[1]}


class _TableAndLayers(tf.Module):
    """A table that fits no GPU, and layers that do."""

    def __init__(self) -> None:
        super().__init__()
        random = np.random.default_rng(0)
        self.table = tf.Variable(random.normal(size=[200_000, 64]).astype(np.float32))
        self.layers = _DenseBlocks(1024, 4)
        self.first = tf.Variable(random.normal(0, 0.1, [64, 1024]).astype(np.float32))

    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Serves a request, int32 [rows]."""
        with tf.name_scope("table"):
            found = tf.gather(self.table, x)
        with tf.name_scope("first"):
            found = tf.tanh(found @ self.first)
        return self.layers.serve(found)


def _branches_graph(branches: int, layers: int, units: int, batch: int) -> TrainingModel:
    """Builds independent branches of layers over one input, whose results are summed."""
    with model_graph(tf1.glorot_uniform_initializer()):
        x = tf1.placeholder(tf.float32, [batch, units], name="x")
        ends = []
        for branch in range(branches):
            value = x
            for layer in range(layers):
                value = tf.tanh(dense(value, units, f"branch_{branch}/layer_{layer}"))
            ends.append(value)
        loss = tf.reduce_mean(tf.add_n(ends) ** 2, name="loss")
        return training_model(
            loss,
            train(loss, tf1.train.GradientDescentOptimizer(0.1)),
            lambda random: {"x": random.normal(size=[batch, units]).astype(np.float32)},
        )


def _random_floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def _random_rows(rows: int, count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, rows, count).astype(np.int32)


_ON_CPU = {"all on the CPU": {"*": _CPU}}

_ENTRIES = (
    MemoryCase(
        "text_classifier",
        "tensorflow 31162",
        "train a Keras classifier whose embedding and softmax exceed a GPU",
        lambda directory: _ModelTarget(_classify_text),
        (44, 44),
        {
            "layer split": {"*classes*": "GPU:1"},
            "tables on the CPU": {"*embedding*": _CPU},
            **_ON_CPU,
        },
        {"objective": "fit"},
    ),
    MemoryCase(
        "wide_and_deep",
        "tensorflow 37563",
        "train a wide and deep model that is larger than a GPU",
        lambda directory: _GraphTarget(
            wide_and_deep.build(60_000, 32, hidden_units=(1024, 512), batch=512)
        ),
        (44, 44),
        {
            "layer split": {"*embedding_item*": "GPU:1", "*embedding_user*": "GPU:0"},
            "tables on the CPU": {"*embedding_*": _CPU, "wide/*": _CPU},
            **_ON_CPU,
        },
        {"placer": "host_embeddings", "objective": "fit"},
    ),
    MemoryCase(
        "host_tables",
        "recommenders-addons 401",
        "keep the tables in the memory of the host, and train beside it on a GPU",
        lambda directory: _FunctionTarget(_train_on_tables),
        (44, 44),
        {
            "tables on the CPU": {"*table_*": _CPU},
            "a table per GPU": {"*table_1*": "GPU:1"},
            **_ON_CPU,
        },
        {"pin": {"*table_*": _CPU}},
    ),
    MemoryCase(
        "four_gpus",
        "keras 14093",
        "spread the layers of a Keras model over four GPUs, none of which runs out of memory",
        lambda directory: _ModelTarget(_stack_dense),
        (32, 32, 32, 32),
        {
            "layer split": {f"re:.*block_[{2 * n}{2 * n + 1}].*": f"GPU:{n}" for n in range(1, 4)},
            **_ON_CPU,
        },
        {
            "objective": "fit",
            "keep_together": [[f"*block_{2 * n}*", f"*block_{2 * n + 1}*"] for n in range(4)],
        },
    ),
    MemoryCase(
        "served_in_parts",
        "serving 2159",
        "serve a SavedModel that exceeds a GPU on two",
        lambda directory: _SavedModelTarget(
            directory, lambda: _DenseBlocks(1440, 6), _random_floats(256, 1440)
        ),
        (44, 44),
        {"layer split": {"re:.*block_[345].*": "GPU:1"}, **_ON_CPU},
        {"objective": "fit"},
    ),
    MemoryCase(
        "idle_gpu",
        "serving 311",
        "serve on all GPUs of a computer, of which one is used",
        lambda directory: _SavedModelTarget(
            directory, lambda: _TwoBranches(1024, 8), _random_floats(1024, 1024)
        ),
        (128, 128),
        {
            "layer split": {"re:.*branch_[01]_[23].*": "GPU:1"},
            "a branch per GPU": {"*branch_1_*": "GPU:1"},
            **_ON_CPU,
        },
    ),
    MemoryCase(
        "served_table",
        "tensorflow 53743",
        "serve a table from the memory of the host, and layers from a GPU",
        lambda directory: _SavedModelTarget(
            directory, _TableAndLayers, _random_rows(200_000, 1024)
        ),
        (44,),
        {"tables on the CPU": {"*table*": _CPU}, **_ON_CPU},
        {"pin": {"*table/*": _CPU}},
    ),
    MemoryCase(
        "recommender",
        "Merlin models 451",
        "train a recommender whose tables exceed the memory of a GPU",
        lambda directory: _GraphTarget(
            two_towers.build(48_000, 32, hidden_units=(512, 256), batch=512)
        ),
        (44, 44),
        {
            "a tower per GPU": {"re:.*(item_tower|item_id|channel|words).*": "GPU:1"},
            "tables on the CPU": {"*embedding_*": _CPU},
            **_ON_CPU,
        },
        {"objective": "fit"},
    ),
    MemoryCase(
        "unequal_gpus",
        "keras 8840",
        "use a slow GPU beside a fast one, without waiting for it",
        lambda directory: _GraphTarget(_branches_graph(8, 3, 1024, 2048)),
        "emulated:1xV100+1xK80",
        {
            "half on each": {"re:.*branch_[4-7].*": "GPU:1"},
            "one branch of eight": {"*branch_7*": "GPU:1"},
            **_ON_CPU,
        },
    ),
    MemoryCase(
        "numa_nodes",
        "tensorflow 19391",
        "compute on the cores of each NUMA node as on a device",
        lambda directory: _GraphTarget(_branches_graph(2, 6, 384, 64)),
        "cores:0/1",
        {"a branch per node": {"*branch_1*": "task:1"}},
    ),
)

CASES: Mapping[str, MemoryCase] = {entry.name: entry for entry in _ENTRIES}
"""The cases by name."""
