from absl.testing import absltest, parameterized

from benchmarks.comparison.readings import (
    CHOSEN,
    FULL_SIZE_READINGS,
    READINGS,
    REPAIRS,
    readings_markdown,
)
from tf_placer.placers import check_options, describe_placer
from tf_placer.placers.presets import name_paper_preset


class ReadingsTest(parameterized.TestCase):
    @parameterized.parameters(*READINGS, *FULL_SIZE_READINGS, *REPAIRS)
    def test_every_variant_has_settings_that_there_are_and_that_differ(self, reading):
        variants = reading.variants()
        seen = []
        for settings in variants.values():
            check_options(reading.system, {**reading.small, **settings})
            self.assertNotIn(settings, seen)
            seen.append(settings)

    @parameterized.parameters(*READINGS, *FULL_SIZE_READINGS, *REPAIRS)
    def test_what_is_chosen_is_what_the_placer_has_and_published_what_its_variant_has(
        self, reading
    ):
        placers = {CHOSEN: reading.system, "published": name_paper_preset(reading.system)}
        for variant in reading.variants().keys() & placers.keys():
            placer = placers[variant]
            settings = {each.name: each.value for each in describe_placer(placer).settings}
            for name, value in check_options(reading.system, reading.variants()[variant]).items():
                # A baseline of the mean of all samples has no moving average to compare.
                if not (name.startswith("baseline_") and settings["baseline"] == "mean"):
                    self.assertEqual(settings[name], value, f"{placer}: {name}")

    def test_the_page_compares_medians_with_those_of_the_chosen_settings(self):
        page = readings_markdown(
            "The title",
            {
                ("a", CHOSEN, "p"): [1.0, 3.0, 2.0],
                ("a", "published", "p"): [4.0, 4.0, 9.0],
                ("a", CHOSEN, "q"): [1.0, 1.0, None],
                ("a", "published", "q"): [8.0, 1.0, 8.0],
                ("a", CHOSEN, "r"): [1.0],
                ("a", "published", "r"): [None, None, 1.0],
                ("b", CHOSEN, "p"): [1.0],
                ("b", CHOSEN, "q"): [],
            },
            ["p", "q", "r"],
            "made",
        )
        self.assertStartsWith(page, "# The title\n")
        rows = [
            line.split("|")[1:-1] for line in page.splitlines() if line.startswith(("| a", "| b"))
        ]
        cells = [[cell.strip() for cell in row] for row in rows]
        self.assertEqual(cells[0], ["a", CHOSEN, "2.000", "1.000", "1.000", "1.000"])
        self.assertEqual(cells[2], ["b", CHOSEN, "1.000", "", "", "1.000 (1 of 3)"])
        # By hand: the root of 4/2 * 8/1.
        self.assertEqual(cells[1], ["a", "published", "4.000", "8.000", "none", "4.000 (2 of 3)"])


if __name__ == "__main__":
    absltest.main()
