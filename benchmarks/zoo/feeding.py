"""Graphs by the source of their examples: feeds, iterators, queues, tables and files."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
import tensorflow as tf

from benchmarks.zoo.graph_parts import (
    CLASSES,
    SEED,
    Kinds,
    StepGraph,
    classifier_loss,
    counter,
    make_classifier,
    make_training,
    weight_variable,
)

tf1 = tf.compat.v1

__all__ = ["KINDS"]

KINDS = Kinds()

_VOCABULARY = pathlib.Path(__file__).with_name("data") / "words.txt"


def _examples(count: int = 12) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(SEED)
    features = random.standard_normal([count, 4]).astype(np.float32)
    return features, random.integers(0, CLASSES, count, dtype=np.int32)


def _batches(*arrays: np.ndarray | tf.Tensor) -> tf.data.Dataset:
    examples = tf1.data.Dataset.from_tensor_slices(arrays)
    return examples.repeat().batch(4, drop_remainder=True).prefetch(1)


@KINDS.v1
def unknown_shapes() -> StepGraph:
    """Is fed batches of any size, and the number of labels with them."""
    features, labels = _examples(5)
    x = tf1.placeholder(tf.float32, [None, 4], name="x")
    y = tf1.placeholder(tf.int32, [None], name="y")
    count = tf1.placeholder(tf.float32, name="count")
    value = tf.reshape(x, [-1, 2, 2]) / tf.cast(tf.shape(x)[0], tf.float32)
    loss = classifier_loss(tf.reshape(value, [-1, 4]), y) / count
    return make_training(loss, feeds={x: features, y: labels, count: 5.0})


@KINDS.default
def sparse_placeholder() -> StepGraph:
    """Is fed a sparse tensor for a wide layer."""
    wide = tf1.sparse_placeholder(tf.float32, [3, 8], name="wide")
    weights = weight_variable("weights", [8, 4])
    value = tf1.sparse_tensor_dense_matmul(wide, weights)
    value += tf1.sparse_reduce_sum(wide, 1, keepdims=True)
    value = tf.reshape(tf.nn.relu(value), [3, 4])
    fed = tf1.SparseTensorValue(
        np.array([[0, 1], [1, 5], [2, 0], [2, 7]]), np.ones(4, np.float32), [3, 8]
    )
    return make_classifier(value, tf.constant([0, 1, 2]), {wide: fed})


@KINDS.v1
def sparse_embedding() -> StepGraph:
    """Looks up sets of weighted words of different sizes in one table."""
    words = tf1.sparse_placeholder(tf.int64, name="words")
    table = weight_variable("table", [9, 4])
    value = tf1.nn.embedding_lookup_sparse(table, words, None, combiner="mean")
    safe = tf1.nn.safe_embedding_lookup_sparse(table, words, default_id=0, combiner="sqrtn")
    value = tf.ensure_shape(value + safe, [3, 4])
    fed = tf1.SparseTensorValue(
        np.array([[0, 0], [0, 1], [1, 0], [2, 0]]), np.array([4, 8, 1, 4]), [3, 2]
    )
    return make_classifier(value, tf.constant([0, 1, 2]), {words: fed})


@KINDS.default
def ragged_placeholder() -> StepGraph:
    """Is fed a ragged tensor of sentences."""
    words = tf1.ragged.placeholder(tf.int64, 1, name="words")
    table = weight_variable("table", [9, 4])
    found = tf.ragged.map_flat_values(tf.nn.embedding_lookup, table, words)
    value = tf.ensure_shape(tf.reduce_mean(found, axis=1), [3, 4])
    fed = tf1.ragged.constant_value([[1, 2, 3], [4], [5, 8]], dtype=np.int64)
    return make_classifier(value, tf.constant([0, 1, 2]), {words: fed})


@KINDS.v1
def one_shot_iterator() -> StepGraph:
    """Reads a data set that needs no initializer, with a function in it."""
    data = tf1.data.Dataset.range(100).map(
        lambda i: (tf.cast([i, i % 3, i % 5, 1], tf.float32), tf.cast(i % 3, tf.int32))
    )
    iterator = tf1.data.make_one_shot_iterator(data.filter(lambda _, y: y >= 0).repeat().batch(4))
    x, y = iterator.get_next()
    return make_classifier(tf.reshape(x, [-1, 4]), y)


@KINDS.v1
def iterator_of_fed_arrays() -> StepGraph:
    """Feeds arrays to the initializer of an iterator, and nothing to a step."""
    features, labels = _examples()
    x = tf1.placeholder(tf.float32, features.shape, name="features")
    y = tf1.placeholder(tf.int32, labels.shape, name="labels")
    iterator = tf1.data.make_initializable_iterator(_batches(x, y))
    value, taken = iterator.get_next()
    return make_classifier(value, taken, {x: features, y: labels}, (iterator.initializer,))


@KINDS.default
def iterator_of_two_datasets() -> StepGraph:
    """Reads with an iterator that belongs to no data set, first those to train on."""
    features, labels = _examples()
    train, test = _batches(features, labels), _batches(features[::-1], labels[::-1])
    iterator = tf1.data.Iterator.from_structure(
        tf1.data.get_output_types(train), tf1.data.get_output_shapes(train)
    )
    first = iterator.make_initializer(train, name="train_initializer")
    iterator.make_initializer(test, name="test_initializer")
    value, taken = iterator.get_next()
    return make_classifier(value, taken, initializers=(first,))


@KINDS.default
def iterator_by_handle() -> StepGraph:
    """Reads one of two iterators, by a handle that is a string."""
    features, labels = _examples()
    data = _batches(features, labels), _batches(features[::-1] * 2.0, labels[::-1])
    iterators = [tf1.data.make_initializable_iterator(each) for each in data]
    step = tf1.train.get_or_create_global_step()
    handle = tf.where(
        tf.equal(step % 2, 0), iterators[0].string_handle(), iterators[1].string_handle()
    )
    either = tf1.data.Iterator.from_string_handle(
        tf1.placeholder_with_default(handle, []),
        tf1.data.get_output_types(data[0]),
        tf1.data.get_output_shapes(data[0]),
    )
    value, taken = either.get_next()
    first = tuple(each.initializer for each in iterators)
    return make_classifier(value, taken, initializers=first)


@KINDS.default
def dataset_with_state() -> StepGraph:
    """Reads a data set whose function looks into a table and reads a variable."""
    words = np.array([b"the", b"cat", b"sat", b"owl"], object)
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["the", "cat", "sat"], [0, 1, 2]), 3
    )
    scale = tf1.get_variable("scale", initializer=2.0, use_resource=True, trainable=False)
    data = tf1.data.Dataset.from_tensor_slices(words).repeat().batch(4, drop_remainder=True)
    data = data.map(lambda each: (table.lookup(each), tf.ones([4, 1]) * scale))
    iterator = tf1.data.make_initializable_iterator(data)
    numbers, factors = iterator.get_next()
    value = tf.nn.embedding_lookup(weight_variable("embedding", [4, 4]), numbers) * factors
    return make_classifier(value, tf.constant([0, 1, 2, 0]), initializers=(iterator.initializer,))


@KINDS.v1
def parsed_examples() -> StepGraph:
    """Parses serialized examples, numbers in bytes and lists of words."""
    features, labels = _examples(4)

    def serialize(row: np.ndarray, label: int) -> bytes:
        values = {
            "row": tf.train.Feature(bytes_list=tf.train.BytesList(value=[row.tobytes()])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            "words": tf.train.Feature(
                bytes_list=tf.train.BytesList(value=[b"a", b"b"][: label % 3])
            ),
        }
        return tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString()

    texts = tf1.placeholder(tf.string, [4], name="texts")
    parsed = tf1.parse_example(
        texts,
        {
            "row": tf1.FixedLenFeature([], tf.string),
            "label": tf1.FixedLenFeature([], tf.int64),
            "words": tf1.VarLenFeature(tf.string),
        },
    )
    value = tf.reshape(tf1.decode_raw(parsed["row"], tf.float32), [4, 4])
    hashed = tf.strings.to_hash_bucket_fast(parsed["words"].values, 5)
    found = tf.nn.embedding_lookup(weight_variable("table", [5, 4]), hashed)
    sums = tf.math.unsorted_segment_sum(found, parsed["words"].indices[:, 0], 4)
    loss = classifier_loss(value + sums, tf.cast(parsed["label"], tf.int32))
    rows = [serialize(row, int(label)) for row, label in zip(features, labels, strict=True)]
    return make_training(loss, feeds={texts: np.array(rows, object)})


@KINDS.default
def vocabulary_file() -> StepGraph:
    """Splits sentences and looks their words up in a file, there and back."""
    texts = tf1.placeholder(tf.string, [3], name="texts")
    split = tf1.string_split(tf.strings.lower(texts))
    line, number = (tf.string, "WHOLE_LINE"), (tf.int64, "LINE_NUMBER")

    def read(key: tuple[tf.DType, str], value: tuple[tf.DType, str]) -> object:
        columns = [(t, getattr(tf.lookup.TextFileIndex, name)) for t, name in (key, value)]
        return tf.lookup.TextFileInitializer(str(_VOCABULARY), *columns[0], *columns[1])

    table = tf.lookup.StaticVocabularyTable(read(line, number), num_oov_buckets=2)
    back = tf.lookup.StaticHashTable(read(number, line), "?")
    numbers = table.lookup(split.values)
    found = tf.nn.embedding_lookup(weight_variable("embedding", [8, 4]), numbers)
    value = tf.math.segment_mean(found, split.indices[:, 0])
    known = tf.strings.reduce_join(back.lookup(numbers), separator=" ")
    feeds = {texts: np.array([b"The cat sat", b"a dog", b"some Owl ran"], object)}
    step = make_classifier(value, tf.constant([0, 1, 2]), feeds)
    return dataclasses.replace(step, fetches=(*step.fetches, known.name))


@KINDS.default
def mutable_table() -> StepGraph:
    """Counts words in a table that changes with each step."""
    words = tf1.placeholder(tf.string, [3], name="words")
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
    counts = table.lookup(words)
    with tf.control_dependencies([table.insert(words, counts + 1)]):
        now = tf.identity(table.lookup(tf.constant(["a", "b", "z"])))
    value = tf.cast(now, tf.float32)[:, None] * weight_variable("weights", [1, 4])
    loss = classifier_loss(value, tf.constant([0, 1, 2]))
    return make_training(loss, feeds={words: np.array([b"a", b"b", b"c"], object)})


@KINDS.v1
def queue_in_a_step() -> StepGraph:
    """Puts examples into a queue and takes some of them out, in one step."""
    features, _ = _examples(4)
    x = tf1.placeholder(tf.float32, [4, 4], name="x")
    number = counter("number")
    queue = tf1.FIFOQueue(20, [tf.float32, tf.int32], [[4], []], name="examples")
    with tf.control_dependencies([tf1.assign_add(number, 1).op]):
        labels = (tf.range(4) + number.read_value()) % CLASSES
    with tf.control_dependencies([queue.enqueue_many([x, labels])]):
        value, taken = queue.dequeue_many(4)
    return make_classifier(value, taken, {x: features})


@KINDS.v1
def queue_runners() -> StepGraph:
    """Takes batches that a thread puts together from what another thread enumerates."""
    word = tf1.train.string_input_producer(["the", "cat", "sat"], shuffle=False).dequeue()
    length = tf.cast(tf.strings.length(word), tf.float32)
    lengths = tf1.train.batch([tf.fill([4], length)], 3, num_threads=1)
    return dataclasses.replace(make_classifier(lengths, tf.constant([0, 1, 2])), has_runners=True)
