import json

from absl.testing import absltest

from tf_placer.search.log_header import LogMismatchError, check_header, package_versions


class CheckHeaderTest(absltest.TestCase):
    def test_a_log_from_before_there_were_groupings_is_of_heuristic_groups(self):
        check_header("log", {"seed": 1}, {"seed": 1, "grouping": "heuristic"})
        with self.assertRaises(LogMismatchError) as caught:
            check_header("log", {"seed": 1}, {"seed": 1, "grouping": "per_operation"})
        self.assertEqual(
            str(caught.exception),
            'a log of another grouping: log has grouping "heuristic", this search has '
            '"per_operation"',
        )

    def test_another_grouping_is_named_before_its_fingerprint(self):
        logged = {"grouping": "heuristic", "grouping_fingerprint": "a"}
        given = {"grouping": "per_operation", "grouping_fingerprint": "b"}
        with self.assertRaisesRegex(LogMismatchError, 'has grouping "heuristic"'):
            check_header("log", logged, given)
        check_header("log", logged, logged)

    def test_a_log_without_a_grouping_needs_none(self):
        check_header("log", {"seed": 1}, {"seed": 1})


class PackageVersionsTest(absltest.TestCase):
    def test_names_what_decides_what_a_search_does(self):
        versions = package_versions()
        self.assertEqual(list(versions), ["tensorflow", "keras", "numpy"])
        self.assertNotIn("unknown", versions.values())
        json.dumps(versions)


if __name__ == "__main__":
    absltest.main()
