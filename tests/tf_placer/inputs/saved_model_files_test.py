from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from unittest import mock

import tensorflow as tf
from google.protobuf import text_format

from graph_passes.errors import GraphError
from tests.saved_models import REQUEST, save_functions
from tf_placer.inputs.saved_model_files import (
    check_new_directory,
    is_saved_model,
    link_saved_model,
    read_saved_model,
    write_saved_model,
)


def files(directory: str) -> dict[str, bytes]:
    return {
        os.path.relpath(os.path.join(folder, name), directory): pathlib.Path(
            folder, name
        ).read_bytes()
        for folder, _, names in os.walk(directory, followlinks=True)
        for name in names
    }


class SavedModelFilesTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.original = save_functions(
            pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        )
        # TensorFlow Serving reads these requests before it serves.
        os.mkdir(os.path.join(cls.original, "assets.extra"))
        cls.warmup = os.path.join("assets.extra", "tf_serving_warmup_requests")
        with tf.io.TFRecordWriter(os.path.join(cls.original, cls.warmup)) as writer:
            writer.write(b"a request")

    def setUp(self):
        super().setUp()
        self.directory = self.create_tempdir().full_path
        self.new = os.path.join(self.directory, "new")

    def change_device(self):
        saved_model = read_saved_model(self.original)
        saved_model.meta_graphs[0].graph_def.node[0].device = "/device:CPU:0"
        return saved_model

    def test_copies_everything_but_the_graphs(self):
        before = files(self.original)
        saved_model = self.change_device()
        write_saved_model(self.new, saved_model, self.original)
        os.mkdir(f"{self.new}_links")
        link_saved_model(f"{self.new}_links", saved_model, self.original)
        self.assertEqual(files(self.original), before)
        for new in (self.new, f"{self.new}_links"):
            after = files(new)
            self.assertEqual(after.keys(), before.keys())
            self.assertIn(self.warmup, after)
            differing = {name for name, content in before.items() if after[name] != content}
            self.assertEqual(differing, {"saved_model.pb", "fingerprint.pb"})
            self.assertEqual(read_saved_model(new), saved_model)
            loaded = tf.saved_model.load(new)
            self.assertEqual(loaded(REQUEST)["sum"].shape, [4, 3])
        checksum = tf.saved_model.experimental.read_fingerprint(self.new).saved_model_checksum
        old = tf.saved_model.experimental.read_fingerprint(self.original).saved_model_checksum
        self.assertNotEqual(checksum, old, "it says which graphs these are")
        self.assertEqual(sorted(os.listdir(self.directory)), ["new", "new_links"])

    def test_keeps_the_text_format(self):
        text = os.path.join(self.directory, "text")
        shutil.copytree(self.original, text)
        os.unlink(os.path.join(text, "saved_model.pb"))
        pathlib.Path(text, "saved_model.pbtxt").write_text(
            text_format.MessageToString(read_saved_model(self.original))
        )
        write_saved_model(self.new, read_saved_model(text), text)
        self.assertEqual(read_saved_model(self.new), read_saved_model(self.original))
        self.assertIn("saved_model.pbtxt", os.listdir(self.new))

    def test_names_an_unusable_directory_before_writing(self):
        os.makedirs(os.path.join(self.directory, "full", "something"))
        pathlib.Path(self.directory, "file").touch()
        os.symlink(self.original, os.path.join(self.directory, "link"))
        before = files(self.directory), files(self.original)
        for name, error, message in (
            ("full", GraphError, "full' is there already: name a new directory"),
            ("file", GraphError, "file' is there already"),
            ("link", GraphError, "link' is there already"),
            ("link/inside", GraphError, "is inside of the SavedModel itself"),
            ("graph.pb", GraphError, "graph.pb' is called like a graph file: name a new directory"),
            ("no/such", OSError, "cannot write to '.*no': No such file"),
            ("file/new", OSError, "cannot write to '.*file': Not a directory"),
        ):
            path = os.path.join(self.directory, name)
            with self.assertRaisesRegex(error, message):
                check_new_directory(path, self.original)
            with self.assertRaisesRegex(error, message):
                write_saved_model(path, self.change_device(), self.original)
        self.assertEqual((files(self.directory), files(self.original)), before)
        os.mkdir(self.new)
        write_saved_model(self.new, self.change_device(), self.original)
        self.assertTrue(is_saved_model(self.new), "an empty directory is as good as none")

    def test_replaces_a_directory_of_its_record_that_nobody_has_changed(self):
        record = os.path.join(self.directory, "record.json")
        other = os.path.join(self.directory, "other")
        write_saved_model(self.new, read_saved_model(self.original), self.original, record)
        write_saved_model(other, self.change_device(), self.original)
        write_saved_model(self.new, self.change_device(), self.original, record)
        # A fingerprint has a random part.
        new, expected = (files(each) for each in (self.new, other))
        self.assertEqual(new | {"fingerprint.pb": b""}, expected | {"fingerprint.pb": b""})
        self.assertEqual(sorted(os.listdir(self.directory)), ["new", "other", "record.json"])
        check_new_directory(self.new, self.original, record)
        there = "is there already: name a new directory"
        with self.assertRaisesRegex(GraphError, there):
            check_new_directory(other, self.original, record)
        with self.assertRaisesRegex(GraphError, there):
            check_new_directory(self.new, self.original)
        variables = pathlib.Path(self.new, "variables", "variables.index")
        content, status = variables.read_bytes(), os.stat(variables)
        times = status.st_atime_ns, status.st_mtime_ns
        for change, undo in (
            # Trained further: a file of the same name and size.
            (lambda: variables.write_bytes(content), lambda: os.utime(variables, ns=times)),
            (pathlib.Path(self.new, "notes").touch, pathlib.Path(self.new, "notes").unlink),
        ):
            change()
            before = files(self.new)
            with self.assertRaisesRegex(GraphError, there):
                write_saved_model(self.new, self.change_device(), self.original, record)
            self.assertEqual(files(self.new), before)
            undo()
            check_new_directory(self.new, self.original, record)
        pathlib.Path(record).write_text("{")
        with self.assertRaisesRegex(ValueError, "record.json is not a JSON file"):
            check_new_directory(self.new, self.original, record)

    def test_removes_incomplete_output(self):
        full = OSError(28, "No space left on device")
        with (
            mock.patch.object(os, "rename", side_effect=full),
            self.assertRaisesRegex(OSError, "cannot write the SavedModel .*new': .*No space"),
        ):
            write_saved_model(self.new, self.change_device(), self.original)
        self.assertEmpty(os.listdir(self.directory))

    def test_names_a_directory_without_saved_model(self):
        self.assertFalse(is_saved_model(self.directory))
        for name, content, message in (
            (None, b"", "is no SavedModel: it has no saved_model.pb"),
            ("saved_model.cpb", b"", "is too big for one saved_model.pb"),
            ("saved_model.pbtxt", b"saved_model_schema_version: x", "is cut short"),
            ("saved_model.pb", b"\xff\xff", "is not a SavedModel, or is cut short"),
        ):
            if name is not None:
                pathlib.Path(self.directory, name).write_bytes(content)
                self.assertTrue(is_saved_model(self.directory))
            with self.assertRaisesRegex(GraphError, message):
                read_saved_model(self.directory)


if __name__ == "__main__":
    tf.test.main()
