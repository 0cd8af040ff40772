from absl.testing import absltest, parameterized

from tf_placer.placers.composition import resolve
from tf_placer.placers.learned.algorithms.algorithm import Algorithm
from tf_placer.placers.learned.policy import Policy
from tf_placer.placers.parts import PARTS, SHARED_PARTS
from tf_placer.placers.systems import PUBLISHED, SYSTEMS


def _resolve(name, **options):
    return resolve((SYSTEMS | PUBLISHED)[name], options, owner=f"placer {name!r}")


def _settings(name):
    return {setting.name: setting.value for setting in _resolve(name).settings}


class SystemsTest(parameterized.TestCase):
    @parameterized.parameters(sorted(SYSTEMS))
    def test_every_setting_of_a_system_belongs_to_one_of_its_parts(self, name):
        composition = _resolve(name)
        values = {setting.name: setting.value for setting in composition.settings}
        for setting, value in SYSTEMS[name].settings.items():
            self.assertEqual(values[setting], value)

    @parameterized.parameters(sorted(SYSTEMS))
    def test_no_two_parts_of_a_system_have_a_setting_of_one_name(self, name):
        names = [setting.name for setting in _resolve(name).settings]
        self.assertLen(set(names), len(names))

    def test_published_settings(self):
        post = _settings("post:published")
        self.assertEqual((post["batch_size"], post["ce_samples"]), (12, 60))
        self.assertEqual((post["elite_fraction"], post["exploration"]), (0.1, 0.1))
        self.assertEqual((post["ascent_steps"], post["learning_rate"]), (10, 1.0))
        self.assertEqual((post["divergence_target"], post["failure_secs"]), (0.03, 100.0))
        eagle = _settings("eagle_ppo_ce:published")
        self.assertEqual((eagle["num_groups"], eagle["grouper_units"]), (256, 64))
        self.assertEqual((eagle["hidden_units"], eagle["attention"]), (512, "before"))
        self.assertEqual((eagle["batch_size"], eagle["epochs"]), (10, 4))
        self.assertEqual((eagle["ratio_clip"], eagle["entropy_coefficient"]), (0.3, 0.01))
        self.assertEqual((eagle["learning_rate"], eagle["clip_norm"]), (0.01, 1.0))
        self.assertEqual((eagle["ce_samples"], eagle["elites"]), (50, 5))

    def test_where_the_letter_does_not_work_a_variant_has_it(self):
        for name, values in {
            "eagle": ("metis", True, "sample", "sum", 64, 1e-4),
            "eagle:published": ("none", False, "batch", "mean", 256, 0.01),
        }.items():
            found = _settings(name)
            names = ("grouper_start", "feed_item", "baseline_moves", "gain", "num_groups")
            names += ("learning_rate",)
            self.assertEqual(tuple(found[each] for each in names), values)
        self.assertEqual(_settings("colocrl")["baseline_start"], "first_batch")
        self.assertEqual(_settings("colocrl:published")["baseline_start"], "failing")
        self.assertEqual(_settings("hierarchical:published")["learning_rate"], 0.01)
        self.assertEqual(_settings("post:published")["baseline"], "mean")

    @parameterized.parameters(sorted(PUBLISHED))
    def test_a_variant_differs_from_its_system_in_settings_only(self, name):
        system, variant = SYSTEMS[name.removesuffix(":published")], PUBLISHED[name]
        self.assertNotEqual(_settings(name), _settings(name.removesuffix(":published")))
        for part in ("grouper", "policy", "algorithm", "reference"):
            self.assertEqual(getattr(variant, part), getattr(system, part))


class ResolveTest(parameterized.TestCase):
    def test_an_option_takes_another_part_and_its_settings(self):
        composition = _resolve("eagle", grouper="metis", num_groups="64")
        self.assertEqual(composition.parts["grouper"], "metis")
        self.assertEqual(composition.configs["metis"].num_groups, 64)
        self.assertNotIn("feed_forward", composition.configs)

    def test_settings_of_a_part_that_was_replaced_are_no_options(self):
        with self.assertRaisesRegex(ValueError, "placer 'eagle' has no option 'bridge'"):
            _resolve("eagle", grouper="metis", bridge="none")

    def test_two_algorithms_share_one_optimizer(self):
        composition = _resolve("eagle_ppo_ce")
        self.assertContainsSubset({"ppo", "ce_gradient", "optimizer"}, composition.configs)

    def test_every_part_can_be_chosen(self):
        for kind, parts in PARTS.items():
            for name in parts:
                self.assertEqual(_resolve("colocrl", **{kind: name}).parts[kind], name)

    def test_every_part_says_where_it_is_and_where_its_settings_are(self):
        for part in [*SHARED_PARTS.values(), *(p for k in PARTS.values() for p in k.values())]:
            if part.config is not None:
                self.assertEqual(part.config_type().__name__, part.config)
        for kind, face in (("policy", Policy), ("algorithm", Algorithm)):
            for part in PARTS[kind].values():
                self.assertTrue(issubclass(part.made_by(), face), part.factory)

    @parameterized.parameters(
        ({"policy": "seqseq"}, "no policy 'seqseq'.*did you mean 'seq2seq'"),
        ({"algorithm": "ppo+ce"}, "no algorithm 'ppo\\+ce'"),
        ({"hidden_unit": "8"}, "no option 'hidden_unit'.*did you mean 'hidden_units'"),
        ({"hidden_units": "many"}, "'hidden_units'.*must be a whole number, not 'many'"),
        ({"hidden_units": "-2"}, "hidden_units must be positive"),
    )
    def test_refuses_unknown_parts_settings_and_values(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            _resolve("colocrl", **options)


if __name__ == "__main__":
    absltest.main()
