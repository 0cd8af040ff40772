from absl.testing import absltest

from tf_placer.placers.registry import (
    BASELINES,
    PLACERS,
    find_placer,
    granularity_of,
    is_learned,
    needs_problem,
)

_HEURISTICS = {"single_device", "random", "expert"}
_PAPERS = {"colocrl", "hierarchical", "spotlight", "post", "eagle", "eagle_ppo_ce"}


class RegistryTest(absltest.TestCase):
    def test_has_the_systems_of_the_papers_and_the_baselines(self):
        self.assertContainsSubset(_HEURISTICS | _PAPERS, PLACERS)

    def test_placers_that_group_want_units_of_one_colocation_group(self):
        self.assertEqual(granularity_of("colocrl"), "coarse")
        self.assertEqual(granularity_of("random"), "coarse")
        self.assertEqual(granularity_of("hierarchical"), "fine")
        self.assertEqual(granularity_of("colocrl", {"grouper": "metis"}), "fine")
        self.assertEqual(granularity_of("eagle", {"grouper": "coarse"}), "coarse")

    def test_knows_who_learns(self):
        self.assertTrue(is_learned("post"))
        for name in ("random", "auto", "nobody"):
            self.assertFalse(is_learned(name))

    def test_knows_who_needs_costs(self):
        self.assertTrue(needs_problem("heft"))
        self.assertFalse(needs_problem("random"))

    def test_baselines_can_be_made_for_any_graph(self):
        self.assertEqual(BASELINES, ("single_device", "expert"))
        for name in BASELINES:
            self.assertFalse(needs_problem(name) or is_learned(name))

    def test_no_placer_whose_name_is_wrong_is_found(self):
        self.assertEqual(find_placer("heft").name, "heft")
        for call in (find_placer, granularity_of, needs_problem):
            with self.assertRaisesRegex(ValueError, "'colocr'.*did you mean 'colocrl'.*expert"):
                call("colocr")


if __name__ == "__main__":
    absltest.main()
