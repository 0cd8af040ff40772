"""Tests of the keywords of entry points; nothing is searched."""

from __future__ import annotations

import inspect
import warnings
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from tests import graphs
from tf_placer.live import entry_points
from tf_placer.live.entry_points import optimize, optimize_function
from tf_placer.live.result import FunctionResult, OptimizeResult
from tf_placer.search.callbacks import Callback
from tf_placer.search.config import SearchConfig


class EntryPointsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        result = OptimizeResult("graph", False, "nothing is searched")
        self.place = self.enter_context(
            mock.patch.object(entry_points, "place", return_value=result)
        )
        self.enter_context(warnings.catch_warnings())
        warnings.simplefilter("error")
        self.given = graphs.two_branches()

    def build_config(self, **keywords) -> SearchConfig:
        """Returns the configuration that results from a call."""
        optimize(self.given.graph, self.given.fetches, **keywords)
        return self.place.call_args.args[1]

    def test_keywords_are_few(self):
        parameters = inspect.signature(optimize).parameters.values()
        self.assertLen([each for each in parameters if each.kind is not each.VAR_KEYWORD], 13)

    def test_without_keywords_a_search_is_as_the_configuration_has_it_by_default(self):
        self.assertEqual(self.build_config(), SearchConfig())

    def test_keywords_replace_what_the_configuration_says(self):
        config = SearchConfig(placer="eagle", placer_options={"num_groups": 8}, seed=3, max_secs=9)
        asked = self.build_config(config=config, seed=0, machine="local:2", max_trials=7)
        self.assertEqual((asked.seed, asked.machine, asked.max_trials), (0, "local:2", 7))
        self.assertEqual((asked.placer, asked.max_secs), ("eagle", 9.0))
        self.assertEqual(asked.placer_options, {"num_groups": 8})
        with self.assertRaisesRegex(ValueError, "'random' has no option 'num_groups'"):
            self.build_config(config=config, placer="random")

    def test_keywords_of_former_versions_work_with_one_note(self):
        session_config = tf.compat.v1.ConfigProto()
        with self.assertWarnsRegex(
            DeprecationWarning,
            r"no placer_options=, session_config=: write config=tf_placer.SearchConfig\("
            r"placer=..., placer_options=..., session_config=...\)$",
        ) as warned:
            asked = self.build_config(
                placer="eagle", placer_options={"num_groups": 8}, session_config=session_config
            )
        self.assertLen(warned.warnings, 1)
        self.assertEqual(warned.filename, __file__)
        self.assertEqual((asked.placer, asked.placer_options), ("eagle", {"num_groups": 8}))
        self.assertIs(asked.session_config, session_config)

    def test_refuses_unknown_keywords_by_name(self):
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'max_trails'"):
            self.build_config(max_trails=3)
        with self.assertRaisesRegex(ValueError, "config is a tf_placer.SearchConfig, not dict"):
            self.build_config(config={"seed": 1})
        with self.assertRaisesRegex(ValueError, "objects of tf_placer.Callback, not builtin"):
            self.build_config(callbacks=[print])
        self.place.assert_not_called()

    def test_restored_values_come_from_the_configuration(self):
        with (
            mock.patch.object(entry_points, "read_target") as read,
            self.assertWarnsRegex(DeprecationWarning, "no restore_from="),
        ):
            self.build_config(restore_from="weights")
        self.assertEqual(read.call_args.kwargs["restore_from"], "weights")

    def test_a_function_is_passed_on_with_its_example(self):
        function = tf.function(tf.sin)
        self.place.return_value = FunctionResult("graph", False, "nothing", step=None)
        result = optimize_function(function, tf.ones([2]), seed=4, callbacks=[Callback()])
        self.assertIs(result, self.place.return_value)
        given, config, *_ = self.place.call_args.args
        self.assertIs(given.origin.target, function)
        self.assertEqual(config.seed, 4)


if __name__ == "__main__":
    absltest.main()
