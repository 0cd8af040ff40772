"""Tests of the keywords of entry points, without a search."""

from __future__ import annotations

import inspect
import pathlib
import sys
import traceback
import warnings
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from graph_passes.errors import GraphError
from tests import graphs
from tests.tf_placer.placers.users_placers import LastDevice
from tf_placer.live import entry_points, profiling
from tf_placer.live.entry_points import optimize, optimize_function
from tf_placer.live.profiling import profile
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
        """Returns the configuration of a search with these keywords."""
        optimize(self.given.graph, self.given.fetches, **keywords)
        return self.place.call_args.args[1]

    def test_optimize_has_few_keywords(self):
        parameters = inspect.signature(optimize).parameters.values()
        self.assertLen([each for each in parameters if each.kind is not each.VAR_KEYWORD], 14)

    def test_uses_the_default_configuration_without_keywords(self):
        self.assertEqual(self.build_config(), SearchConfig())

    def test_keywords_override_the_configuration(self):
        config = SearchConfig(placer="eagle", placer_options={"num_groups": 8}, seed=3, max_secs=9)
        asked = self.build_config(config=config, seed=0, machine="local:2", max_trials=7)
        self.assertEqual((asked.seed, asked.machine, asked.max_trials), (0, "local:2", 7))
        self.assertEqual((asked.placer, asked.max_secs), ("eagle", 9.0))
        self.assertEqual(asked.placer_options, {"num_groups": 8})
        with self.assertRaisesRegex(
            ValueError, "leave placer= out.*'random' has no option 'num_groups'"
        ):
            self.build_config(config=config, placer="random")

    def test_an_interrupt_before_the_search_has_a_short_traceback(self):
        self.place.side_effect = KeyboardInterrupt
        try:
            self.build_config()
        except KeyboardInterrupt:
            text = traceback.format_exc()
        # One frame of the package, after those of this test, and no other error.
        self.assertEqual(text.count("interrupts.py"), 1)
        self.assertNotIn("live/entry_points.py", text)
        self.assertEndsWith(text, "\nKeyboardInterrupt: interrupted before there was a result\n")
        self.assertEqual(text.count("Traceback"), 1)

    def test_takes_the_class_of_a_placer_that_other_processes_can_import(self):
        asked = self.build_config(placer=LastDevice)
        self.assertEqual(asked.placer, f"{LastDevice.__module__}:LastDevice")

        class Local(LastDevice):
            pass

        with self.assertRaisesRegex(ValueError, "Local', because it is not at the top of a module"):
            self.build_config(placer=Local)

    def test_starts_no_search_in_a_module_that_a_search_imports(self):
        path = pathlib.Path(self.create_tempdir().full_path, "searches_when_imported.py")
        path.write_text(
            "import tf_placer\nfrom tests.tf_placer.placers.users_placers import LastDevice\n"
            "tf_placer.optimize(None, placer='random')"
        )
        self.enter_context(mock.patch.object(sys, "path", [str(path.parent), *sys.path]))
        with self.assertRaisesRegex(
            ValueError, "put the search under `if __name__ .*imported.py:3"
        ):
            self.build_config(placer=f"{path.stem}:LastDevice")

    def test_accepts_keywords_of_former_versions_with_one_warning(self):
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

    def test_refers_to_the_configuration_for_its_fields(self):
        for entry in (optimize, optimize_function, entry_points.optimize_model):
            with self.assertRaises(TypeError) as raised:
                entry(None, None, objective="fit")
            advice = "'objective': write config=tf_placer.SearchConfig(objective=...)"
            self.assertEndsWith(str(raised.exception), advice)

    def test_refuses_unknown_keywords_by_name(self):
        with self.assertRaisesRegex(TypeError, "argument 'max_trails' .*mean 'max_trials'"):
            self.build_config(max_trails=3)
        with self.assertRaisesRegex(ValueError, "config is a tf_placer.SearchConfig, not dict"):
            self.build_config(config={"seed": 1})
        with self.assertRaisesRegex(ValueError, "objects of tf_placer.Callback, not builtin"):
            self.build_config(callbacks=[print])
        for given in ("yes", 3, Callback()):
            with self.assertRaisesRegex(ValueError, "callbacks is a list of .*, not "):
                self.build_config(callbacks=given)
        self.place.assert_not_called()

    def test_reads_the_checkpoint_of_the_configuration(self):
        with mock.patch.object(entry_points, "read_target") as read:
            self.build_config(config=SearchConfig(checkpoint="weights"))
        self.assertEqual(read.call_args.kwargs["checkpoint"], "weights")

    def test_names_the_function_for_models_where_an_example_is_given(self):
        with self.assertRaisesRegex(TypeError, r"write tf_placer\.optimize_function\(function, "):
            optimize(tf.function(lambda x: x), example_inputs=1.0)

    def test_accepts_former_names_with_one_warning(self):
        stop = mock.Mock(side_effect=GraphError("only the arguments matter"))
        for module in (entry_points, profiling):
            self.enter_context(mock.patch.object(module, "read_target", stop))
        x, request = tf.ones([2]), {"x": 1.0}
        for entry, arguments, former, today in (
            (optimize, ["graph"], {"feeds": request}, {"feed_dict": request}),
            (optimize_function, [tf.function(tf.sin)], {"example": x}, {"example_inputs": x}),
            (
                profile,
                ["graph"],
                {"feeds": request, "example": x, "signature": "key", "restore_from": "weights"},
                {
                    "feed_dict": request,
                    "example_inputs": x,
                    "signature_key": "key",
                    "checkpoint": "weights",
                },
            ),
        ):
            with self.subTest(entry.__name__):
                others = {"output": "problem.json"} if entry is profile else {}
                names = ", ".join(f"{name}=" for name in former)
                wanted = ", ".join(f"{name}=..." for name in today)
                message = f"the next version of {entry.__name__} has no {names}: write {wanted}$"
                with (
                    self.assertWarnsRegex(DeprecationWarning, message) as warned,
                    self.assertRaises(GraphError),
                ):
                    entry(*arguments, **former, **others)
                self.assertLen(warned.warnings, 1)
                self.assertEqual(warned.filename, __file__)
                self.assertEqual(stop.call_args.kwargs | today, stop.call_args.kwargs)
                with self.assertRaisesRegex(TypeError, f"write {next(iter(today))}= only"):
                    entry(*arguments, **former, **today, **others)

    def test_accepts_the_former_name_of_a_checkpoint(self):
        self.enter_context(mock.patch.object(entry_points, "read_target"))
        message = r"no restore_from=: write config=tf_placer.SearchConfig\(checkpoint=...\)$"
        with self.assertWarnsRegex(DeprecationWarning, message):
            config = self.build_config(restore_from="weights")
        self.assertEqual(config.checkpoint, "weights")
        message = "SearchConfig has no restore_from=: write checkpoint=...$"
        with self.assertWarnsRegex(DeprecationWarning, message) as warned:
            self.assertEqual(SearchConfig(restore_from="weights"), config)
        self.assertEqual(warned.filename, __file__)
        with self.assertRaisesRegex(
            TypeError, r"SearchConfig\(\) got restore_from= and checkpoint="
        ):
            SearchConfig(checkpoint="weights", restore_from="weights")

    def test_passes_a_function_on_with_its_example_inputs(self):
        function = tf.function(tf.sin)
        self.place.return_value = FunctionResult("graph", False, "nothing", step=None)
        result = optimize_function(function, tf.ones([2]), seed=4, callbacks=[Callback()])
        self.assertIs(result, self.place.return_value)
        given, config, *_ = self.place.call_args.args
        self.assertIs(given.origin.target, function)
        self.assertEqual(config.seed, 4)


if __name__ == "__main__":
    absltest.main()
