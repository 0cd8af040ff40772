from absl.testing import absltest, parameterized

from tf_placer.placers import find_placer
from tf_placer.placers.components import COMPONENTS, SHARED_COMPONENTS
from tf_placer.placers.former_names import FORMER_PLACERS
from tf_placer.placers.learned.algorithms.algorithm import Algorithm
from tf_placer.placers.learned.policy import Policy
from tf_placer.placers.presets import PAPER_PRESETS, PRESETS
from tf_placer.placers.resolved_config import resolve


def _resolve(name, **options):
    return resolve((PRESETS | PAPER_PRESETS)[name], options, owner=f"placer {name!r}")


def _settings(name):
    return {setting.name: setting.value for setting in _resolve(name).settings}


class PresetsTest(parameterized.TestCase):
    @parameterized.parameters(sorted(PRESETS))
    def test_every_setting_of_a_preset_belongs_to_one_of_its_components(self, name):
        resolved = _resolve(name)
        values = {setting.name: setting.value for setting in resolved.settings}
        for setting, value in PRESETS[name].settings.items():
            self.assertEqual(values[setting], value)

    @parameterized.parameters(sorted(PRESETS))
    def test_components_of_a_preset_have_settings_with_distinct_names(self, name):
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

    def test_presets_are_variants_and_paper_presets_are_as_published(self):
        for name, values in {
            "eagle": ("metis", True, "sample", "sum", 64, 1e-4),
            "eagle:published": ("none", False, "batch", "mean", 256, 0.01),
        }.items():
            settings = _settings(name)
            names = ("grouper_start", "feed_item", "baseline_moves", "gain", "num_groups")
            names += ("learning_rate",)
            self.assertEqual(tuple(settings[each] for each in names), values)
        self.assertEqual(_settings("colocrl")["baseline_start"], "first_batch")
        self.assertEqual(_settings("colocrl:published")["baseline_start"], "failing")
        self.assertEqual(_settings("hierarchical:variant")["learning_rate"], 0.01)
        self.assertEqual(_settings("post:published")["baseline"], "mean")

    def test_only_presets_whose_papers_print_settings_are_published(self):
        for name, preset in PAPER_PRESETS.items():
            self.assertEqual(name.endswith(":published"), bool(preset.printed), name)
            self.assertContainsSubset(preset.printed, _settings(name))
        variants = [name for name in PAPER_PRESETS if name.endswith(":variant")]
        self.assertCountEqual(variants, FORMER_PLACERS.values())
        for former, name in FORMER_PLACERS.items():
            self.assertEqual(find_placer(former).preset, PAPER_PRESETS[name])

    @parameterized.parameters(sorted(PAPER_PRESETS))
    def test_a_paper_preset_differs_from_its_variant_in_settings_only(self, name):
        variant, paper = PRESETS[name.partition(":")[0]], PAPER_PRESETS[name]
        self.assertNotEqual(_settings(name), _settings(name.partition(":")[0]))
        for field in ("grouper", "policy", "algorithm", "reference"):
            self.assertEqual(getattr(paper, field), getattr(variant, field))


class ResolveTest(parameterized.TestCase):
    def test_an_option_selects_another_component_and_its_settings(self):
        resolved = _resolve("eagle", grouper="metis", num_groups="64")
        self.assertEqual(resolved.components["grouper"], "metis")
        self.assertEqual(resolved.configs["metis"].num_groups, 64)
        self.assertNotIn("feed_forward", resolved.configs)

    def test_rejects_settings_of_a_replaced_component(self):
        with self.assertRaisesRegex(ValueError, "placer 'eagle' has no option 'bridge'"):
            _resolve("eagle", grouper="metis", bridge="none")

    def test_two_algorithms_share_one_optimizer(self):
        resolved = _resolve("eagle_ppo_ce")
        self.assertContainsSubset({"ppo", "ce_gradient", "optimizer"}, resolved.configs)

    def test_every_component_can_be_chosen(self):
        for kind, components in COMPONENTS.items():
            for name in components:
                self.assertEqual(_resolve("colocrl", **{kind: name}).components[kind], name)

    def test_every_component_can_be_imported(self):
        for components in (SHARED_COMPONENTS, *COMPONENTS.values()):
            for component in components.values():
                if component.config is not None:
                    self.assertEqual(component.config_type().__name__, component.config)
        for kind, base in (("policy", Policy), ("algorithm", Algorithm)):
            for component in COMPONENTS[kind].values():
                self.assertTrue(issubclass(component.import_factory(), base), component.factory)

    @parameterized.parameters(
        ({"policy": "seqseq"}, "no policy 'seqseq'.*did you mean 'seq2seq'"),
        ({"algorithm": "ppo+ce"}, "no algorithm 'ppo\\+ce'"),
        ({"hidden_unit": "8"}, "no option 'hidden_unit'.*did you mean 'hidden_units'"),
        ({"hidden_units": "many"}, "'hidden_units'.*must be a whole number, not 'many'"),
        ({"hidden_units": "-2"}, "hidden_units must be positive"),
    )
    def test_refuses_unknown_components_settings_and_values(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            _resolve("colocrl", **options)


if __name__ == "__main__":
    absltest.main()
