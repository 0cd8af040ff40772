from absl.testing import absltest

from tf_placer.placers.registry import (
    BASELINES,
    PLACERS,
    find_granularity,
    find_placer,
    is_learned,
    needs_problem,
)

_HEURISTICS = {"single_device", "random", "expert"}
_PAPERS = {"colocrl", "hierarchical", "spotlight", "post", "eagle", "eagle_ppo_ce"}


class RegistryTest(absltest.TestCase):
    def test_has_the_presets_of_the_papers_and_the_baselines(self):
        self.assertContainsSubset(_HEURISTICS | _PAPERS, PLACERS)

    def test_placers_that_group_operations_have_fine_granularity(self):
        self.assertEqual(find_granularity("colocrl"), "coarse")
        self.assertEqual(find_granularity("random"), "coarse")
        self.assertEqual(find_granularity("hierarchical"), "fine")
        self.assertEqual(find_granularity("colocrl", {"grouper": "metis"}), "fine")
        self.assertEqual(find_granularity("eagle", {"grouper": "coarse"}), "coarse")

    def test_tells_learned_placers_from_others(self):
        self.assertTrue(is_learned("post"))
        for name in ("random", "auto", "nobody"):
            self.assertFalse(is_learned(name))

    def test_tells_which_placers_need_costs(self):
        self.assertTrue(needs_problem("heft"))
        self.assertFalse(needs_problem("random"))

    def test_baselines_can_be_made_for_any_graph(self):
        self.assertEqual(BASELINES, ("single_device", "expert"))
        for name in BASELINES:
            self.assertFalse(needs_problem(name) or is_learned(name))

    def test_refuses_unknown_names_and_suggests_the_nearest(self):
        self.assertEqual(find_placer("heft").name, "heft")
        for call in (find_placer, find_granularity, needs_problem):
            with self.assertRaisesRegex(ValueError, "'colocr'.*did you mean 'colocrl'.*expert"):
                call("colocr")


if __name__ == "__main__":
    absltest.main()
