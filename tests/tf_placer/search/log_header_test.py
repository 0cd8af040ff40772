import json
import pathlib

from absl.testing import absltest, parameterized

from tf_placer.placers.former_names import FORMER_NAMES, FORMER_PLACERS
from tf_placer.search.log_header import (
    LogMismatchError,
    check_header,
    continue_options,
    format_settings,
    package_versions,
    search_header,
    upgrade_header,
)

HEADER = {
    "graph_fingerprint": "g1",
    "fetches": ["y:0"],
    "machine": {"spec": "local:2", "devices": [{"name": "a"}, {"name": "b", "cores": [0, 1]}]},
    "protocol": {"steps": 10, "dropped": 1},
    "seed": 3,
    "versions": {"tensorflow": "2.14.0"},
}


class CheckHeaderTest(parameterized.TestCase):
    @parameterized.parameters(
        ({"graph_fingerprint": "g2"}, "graph_fingerprint", "g1", "g2", "another graph"),
        ({"fetches": ["z:0"]}, "fetches[0]", "y:0", "z:0", "another step"),
        ({"seed": 4}, "seed", 3, 4, "another seed"),
        (
            {"protocol": {"steps": 15, "dropped": 1}},
            "protocol.steps",
            10,
            15,
            "another measuring protocol",
        ),
        (
            {"machine": {"spec": "local:2", "devices": [{"name": "a"}, {"name": "c"}]}},
            *("machine.devices[1].name", "b", "c", "another machine"),
        ),
        ({"extra": 1}, "extra", None, 1, "another extra"),
    )
    def test_a_log_of_another_search_is_refused_by_name(self, changes, field, old, new, noun):
        with self.assertRaises(LogMismatchError) as caught:
            check_header("a/log", HEADER, HEADER | changes)
        error = caught.exception
        self.assertEqual((error.field, error.logged, error.given), (field, old, new))
        named = () if field == "graph_fingerprint" else (field,)
        for part in (f"a log of {noun}", "a/log", *named):
            self.assertIn(part, str(error))

    def refusal(self, logged, given) -> str:
        with self.assertRaises(LogMismatchError) as caught:
            check_header("log", HEADER | logged, HEADER | given)
        return str(caught.exception)

    def test_another_graph_has_the_remedy_first_and_no_fingerprints(self):
        logged, given = {"graph_fingerprint": "3" * 64}, {"graph_fingerprint": "6" * 64}
        self.assertEqual(
            self.refusal(logged, given),
            "a log of another graph: name another log_dir, or delete this one. The log log is of "
            "another model, optimizer or batch",
        )
        self.assertEqual(
            self.refusal(
                {**logged, "num_operations": 1210, "feeds": {"data:0": "float32[32, 8]"}},
                {**given, "num_operations": 1300, "feeds": {"data:0": "float32[64, 8]"}},
            ),
            "a log of another graph: name another log_dir, or delete this one. The log log has "
            "batch size 32 and 1,210 operations, this search has batch size 64 and 1,300 "
            "operations",
        )

    @parameterized.parameters(
        (
            {"x": "float32[32, 8]", "y": "int32[32]"},
            {"x": "float32[64, 8]", "y": "int32[64]"},
            True,
        ),
        ({"x": "float32[32, 8]", "c": "int32[]"}, {"x": "float32[64, 8]", "c": "int32[]"}, True),
        ({"x": "float32[32, 8]"}, {"x": "float32[64, 9]"}, False),
        ({"x": "float32[32, 8]"}, {"x": "float64[64, 8]"}, False),
        ({"x": "float32[32, 8]"}, {"z": "float32[64, 8]"}, False),
        ({"x": "float32[32]", "y": "int32[3]"}, {"x": "float32[64]", "y": "int32[4]"}, False),
    )
    def test_only_another_batch_size_is_called_one(self, old, new, is_batch_size):
        for others in ({}, {"graph_fingerprint": "g2"}):
            text = self.refusal({"feeds": old}, {"feeds": new, **others})
            self.assertEqual(
                "has batch size 32, this search has batch size 64" in text, is_batch_size
            )

    def test_the_number_of_operations_identifies_no_search(self):
        check_header("log", HEADER, HEADER | {"num_operations": 3})
        check_header("log", HEADER | {"num_operations": 4}, HEADER | {"num_operations": 3})

    def test_clears_the_session_only_where_it_can_help(self):
        hint = r"keras.utils.clear_session()"
        graph = {"graph_fingerprint": "g2"}
        pins = {"pin": {"dense/*": "CPU"}}
        self.assertIn(hint, self.refusal(pins, pins | graph))
        self.assertIn(hint, self.refusal({}, {"grouping_fingerprint": "g2"}))
        self.assertNotIn(hint, self.refusal({}, graph))
        counts = {"num_operations": 3}, {"num_operations": 4}
        self.assertNotIn(hint, self.refusal(pins | counts[0], pins | graph | counts[1]))

    def test_a_field_that_the_search_lacks_is_a_mismatch(self):
        with self.assertRaisesRegex(LogMismatchError, "seed 3, this search has none"):
            check_header("log", HEADER, {k: v for k, v in HEADER.items() if k != "seed"})

    def test_long_values_are_cut_in_the_message(self):
        with self.assertRaises(LogMismatchError) as caught:
            check_header("log", {"configuration": "x" * 5000}, {"configuration": "y" * 5000})
        self.assertLess(len(str(caught.exception)), 1000)

    def test_other_versions_are_a_warning(self):
        with self.assertLogs(level="WARNING") as logs:
            check_header("log", HEADER, HEADER | {"versions": {"tensorflow": "2.21.0"}})
        self.assertRegex(logs.output[0], 'versions.tensorflow was "2.14.0", is "2.21.0"')

    def test_messages_name_the_subject_that_differs(self):
        with self.assertRaises(LogMismatchError) as caught:
            check_header("log", {"seed": 1, "controllers": 2}, {"seed": 1})
        self.assertEqual(
            str(caught.exception),
            "a log of another number of controllers: log has controllers 2, this search has none",
        )

    def test_a_log_from_before_there_were_granularities_is_of_coarse_groups(self):
        check_header("log", {"seed": 1}, {"seed": 1, "granularity": "coarse"})
        with self.assertRaises(LogMismatchError) as caught:
            check_header("log", {"seed": 1}, {"seed": 1, "granularity": "fine"})
        self.assertEqual(
            str(caught.exception),
            'a log of another granularity: log has granularity "coarse", this search has "fine"',
        )

    def test_another_granularity_is_named_before_the_fingerprint_of_the_groups(self):
        logged = {"granularity": "coarse", "grouping_fingerprint": "a"}
        given = {"granularity": "fine", "grouping_fingerprint": "b"}
        with self.assertRaisesRegex(LogMismatchError, 'has granularity "coarse"'):
            check_header("log", logged, given)
        check_header("log", logged, logged)

    @parameterized.parameters(("heuristic", "coarse"), ("per_operation", "fine"))
    def test_former_names_of_earlier_versions_are_equal_to_the_current_ones(self, former, today):
        logged = {"grouping": former, "configuration": {"grouper": former, "rate": 1}}
        given = {"granularity": today, "configuration": {"grouper": today, "rate": 1}}
        check_header("log", logged, given)
        self.assertEqual(upgrade_header(logged), given)

    def test_logs_with_former_names_of_options_resume(self):
        for former, name in FORMER_NAMES.items():
            logged = {"configuration": {former: 1, "rate": 2}}
            given = {"configuration": {name: 1, "rate": 2}}
            check_header("log", logged, given)
            self.assertEqual(upgrade_header(logged), given)

    def test_a_log_without_a_granularity_needs_none(self):
        check_header("log", {"seed": 1}, {"seed": 1})


class ContinueOptionsTest(absltest.TestCase):
    """Tests of searches that an earlier version began."""

    def setUp(self):
        super().setUp()
        self.header = json.loads(
            pathlib.Path(__file__).with_name("testdata").joinpath("eagle_header.json").read_text()
        )

    def test_settings_that_are_not_given_stay_those_of_the_log(self):
        options = continue_options("eagle", {"num_groups": 8}, self.header)
        former = {"baseline_failures": True, "failure_factor": None, "grouper_uniform": 0.01}
        self.assertEqual(options, {"num_groups": 8} | former)
        given = json.loads(json.dumps(search_header({"problem": "p"}, "eagle", options, 3)))
        check_header("log", self.header, given)

    def test_without_them_the_log_is_of_another_search(self):
        given = search_header({"problem": "p"}, "eagle", {"num_groups": 8}, 3)
        with self.assertRaisesRegex(LogMismatchError, "configuration"):
            check_header("log", self.header, given)

    def test_given_settings_are_not_replaced(self):
        options = continue_options("eagle", {"num_groups": 9, "failure_factor": 3.0}, self.header)
        self.assertEqual((options["num_groups"], options["failure_factor"]), (9, 3.0))

    def test_logs_of_this_version_and_of_other_placers_add_nothing(self):
        given = {"failure_factor": 7.0}
        today = search_header({}, "eagle", given, 3)
        for placer, options, header in (
            ("eagle", {}, today),
            ("eagle", {}, None),
            ("eagle", {}, {**self.header, "configuration": None}),
            ("post", {"batch_size": 6}, self.header),
            ("auto", {}, self.header),
        ):
            self.assertEqual(continue_options(placer, options, header), options)

    def test_former_names_of_placers_and_settings_count(self):
        for former, name in FORMER_PLACERS.items():
            header = {"placer": former, "configuration": {"penalty_secs": 7.0}}
            self.assertEqual(upgrade_header(header)["placer"], name)
            self.assertEqual(continue_options(name, {}, header)["failure_secs"], 7.0)


class FormatSettingsTest(absltest.TestCase):
    def test_are_written_as_placer_option_takes_them(self):
        given = {"grouper": "metis", "num_groups": 32, "tanh_limit": None, "starts": ["a"]}
        self.assertEqual(
            format_settings(given), 'grouper=metis, num_groups=32, tanh_limit=null, starts=["a"]'
        )
        self.assertEqual(format_settings({}), "")


class PackageVersionsTest(absltest.TestCase):
    def test_has_the_packages_that_affect_a_search(self):
        versions = package_versions()
        self.assertEqual(list(versions), ["tensorflow", "keras", "numpy"])
        self.assertNotIn("unknown", versions.values())
        json.dumps(versions)


if __name__ == "__main__":
    absltest.main()
