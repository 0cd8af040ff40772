"""Tests of event files when the process of a script is restarted."""

from __future__ import annotations

import pathlib

import tensorflow as tf

from tf_placer.scripts.event_files import flush_event_files

tf1 = tf.compat.v1


class FlushEventFilesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def count_events(self) -> int:
        """Reads all records, which fails if the file ends within one."""
        [path] = self.directory.iterdir()
        return sum(1 for _ in tf1.train.summary_iterator(str(path)))

    def test_writers_of_version_1_end_with_a_whole_record(self):
        with tf.Graph().as_default():
            writer = tf1.summary.FileWriter(self.directory)
        values = tf1.Summary.Value(tag="v", tensor=tf.make_tensor_proto([1.0] * 3000))
        for step in range(3):
            writer.add_summary(tf1.Summary(value=[values]), step)
        flush_event_files()
        self.assertEqual(self.count_events(), 4)

    def test_writers_of_version_2_end_with_a_whole_record(self):
        writer = tf.summary.create_file_writer(str(self.directory))
        with writer.as_default():
            for step in range(3):
                tf.summary.write("v", tf.ones([3000]), step=step)
        flush_event_files()
        self.assertEqual(self.count_events(), 4)

    def test_proxies_are_not_asked_for_their_class(self):
        class Proxy:
            @property
            def __class__(self):
                raise RuntimeError("no context")

        proxies = [Proxy()]
        flush_event_files()
        self.assertLen(proxies, 1)

    def test_a_writer_that_cannot_be_flushed_changes_nothing(self):
        writer = tf.summary.create_file_writer(str(self.directory))
        writer.close()
        flush_event_files()
        self.assertEqual(self.count_events(), 1)


if __name__ == "__main__":
    tf.test.main()
