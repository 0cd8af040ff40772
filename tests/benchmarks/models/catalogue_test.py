"""Every entry of the catalogue names settings that its module takes."""

from __future__ import annotations

import importlib
import inspect
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks.models import catalogue
from tests.benchmarks.models.sessions import plain_session

tf1 = tf.compat.v1

# One model of each recurrent module; the others have tests that build them.
RUN = ("rnnlm_2", "nmt_2", "gnmt_4", "two_towers")


class CatalogueTest(tf.test.TestCase, parameterized.TestCase):
    def test_all_models_of_the_papers_are_there(self):
        papers = ["rnnlm_2", "rnnlm_4", "nmt_2", "nmt_4", "nmt_8", "gnmt_4"]
        papers += [
            "gnmt_4_wide",
            "rnnlm_large",
            "nmt_large",
            "inception_v3",
            "inception_v3_batch_1",
            "inception_v3_towers",
        ]
        papers += ["inception_v3_async_towers", "resnet_50", "resnet_101", "resnet_200"]
        papers += ["bert_base"]
        later = ["decoder_only", "mixture_of_experts", "nasnet_a", "two_towers"]
        self.assertEqual(list(catalogue.MODELS), papers + later)
        for name, entry in catalogue.MODELS.items():
            self.assertEqual(entry.name, name)
            self.assertTrue(entry.title and entry.note, name)
            # The papers' models have the variables of their time.
            self.assertEqual(entry.settings.get("use_resource", True), name in later, name)
        titles = {entry.title for entry in catalogue.MODELS.values()}
        self.assertLen(titles, len(catalogue.MODELS))

    @parameterized.parameters(*catalogue.MODELS)
    def test_settings_are_those_of_the_module(self, name):
        entry = catalogue.MODELS[name]
        module = importlib.import_module(f"benchmarks.models.{entry.module}")
        known = inspect.signature(module.build).parameters
        self.assertContainsSubset({**entry.settings, **entry.small}, known)

    @parameterized.parameters(*RUN)
    def test_small_models_train(self, name):
        model = catalogue.build_model(name, small=True)
        self.assertIn(
            model.graph.get_operation_by_name(model.train_op),
            model.graph.get_collection("train_op"),
        )
        with plain_session(model.graph) as session:
            session.run(model.initializer)
            losses = [
                session.run([model.loss, model.train_op], feeds)[0]
                for feeds in itertools.islice(model.feeds(seed=1), 3)
            ]
        self.assertTrue(np.isfinite(losses).all(), losses)

    def test_full_size_is_that_of_the_paper(self):
        model = catalogue.build_model("rnnlm_2")
        with model.graph.as_default():
            sizes = {v.op.name: v.shape.as_list() for v in tf1.trainable_variables()}
        self.assertEqual(sizes["layer_1/kernel"], [4096, 8192])
        self.assertEqual(sizes["softmax/weights"], [2048, 10_000])
        self.assertEqual(next(model.feeds())[model.tokens].shape, (64, 41))

    def test_unknown_model_is_named(self):
        with self.assertRaisesRegex(ValueError, "no model 'vgg'; there are rnnlm_2, "):
            catalogue.build_model("vgg")


if __name__ == "__main__":
    tf.test.main()
