from absl.testing import absltest, parameterized

from benchmarks.comparison.readings import (
    CHOSEN,
    FULL_SIZE_READINGS,
    PAPER,
    READINGS,
    REPAIRS,
    keep_whole_seeds,
    readings_markdown,
)
from benchmarks.harness.placement_runs import RunKey
from tests.benchmarks.made_up_runs import run
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
    def test_what_is_chosen_is_what_the_placer_has_and_the_paper_preset_is_itself(self, reading):
        placers = {CHOSEN: reading.system, PAPER: name_paper_preset(reading.system)}
        for variant in reading.variants().keys() & placers.keys():
            placer = placers[variant]
            settings = {each.name: each.value for each in describe_placer(placer).settings}
            for name, value in check_options(reading.system, reading.variants()[variant]).items():
                # A baseline of the mean of all samples has no moving average to compare.
                if not (name.startswith("baseline_") and settings["baseline"] == "mean"):
                    self.assertEqual(settings[name], value, f"{placer}: {name}")

    def test_the_page_compares_medians_with_those_of_the_chosen_settings(self):
        def runs(system, *steps):
            keys = (RunKey("nmt_2", "2xK80", system, seed=seed) for seed in range(len(steps)))
            return [run(key, secs) for key, secs in zip(keys, steps, strict=True)]

        page = readings_markdown(
            "The title",
            {
                ("post", CHOSEN, "p"): runs("post", 1.0, 3.0, 2.0),
                ("post", PAPER, "p"): runs("post", 4.0, 4.0, 9.0),
                ("post", CHOSEN, "q"): runs("post", 1.0, 1.0, None),
                ("post", PAPER, "q"): runs("post", 8.0, 1.0, 8.0),
                ("post", CHOSEN, "r"): runs("post", 1.0),
                ("post", PAPER, "r"): runs("post", None, None, 1.0),
                ("eagle", CHOSEN, "p"): runs("eagle", 1.0),
                ("eagle", CHOSEN, "q"): [],
            },
            ["p", "q", "r"],
            "made",
        )
        self.assertStartsWith(page, "# The title\n")
        rows = [
            line.split("|")[1:-1]
            for line in page.splitlines()
            if line.startswith(("| post", "| eagle"))
        ]
        cells = [[cell.strip() for cell in row] for row in rows]
        # A run that found nothing has failed in all samples.
        last = ["3 or 1", "0%, 33%, 0%"]
        self.assertEqual(cells[0], ["post", CHOSEN, "2.000", "1.000", "1.000", "1.000", *last])
        last = ["1.000 (1 of 3)", "1", "0%"]
        self.assertEqual(cells[2], ["eagle", CHOSEN, "1.000", "", "", *last])
        # By hand: the root of 4/2 * 8/1.
        last = ["4.000 (2 of 3)", "3", "0%, 0%, 67%"]
        self.assertEqual(cells[1], ["post", "post:published", "4.000", "8.000", "none", *last])

    def test_all_rows_of_a_system_have_the_seeds_of_which_none_of_its_runs_is_missing(self):
        def key(system, rate, seed):
            return RunKey("nmt_2", "2xK80", system, (("learning_rate", rate),), seed)

        wanted = [
            key(system, rate, seed)
            for system in ("post", "eagle")
            for rate in ("0.1", "0.2")
            for seed in (0, 1)
        ]
        runs = {each: run(each, 1.0) for each in wanted if each != key("eagle", "0.2", 1)}
        kept = keep_whole_seeds(wanted, runs)
        self.assertEqual(kept.keys(), runs.keys() - {key("eagle", "0.1", 1)})
        # Nothing is left out of a system that has no whole seed.
        del runs[key("eagle", "0.1", 0)]
        self.assertEqual(keep_whole_seeds(wanted, runs).keys(), runs.keys())


if __name__ == "__main__":
    absltest.main()
