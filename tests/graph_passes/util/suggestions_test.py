from absl.testing import absltest

from graph_passes.util.suggestions import suggest


class SuggestTest(absltest.TestCase):
    def test_suggests_the_nearest_known_name(self):
        known = ["random", "colocrl", "eagle", "eagle_ppo_ce", "batch_size", "Metis"]
        for written, meant in (
            ("colocrll", "colocrl"),
            ("collocrl", "colocrl"),
            ("COLOCRL", "colocrl"),
            ("eagel", "eagle"),
            ("eagle_ppo", "eagle_ppo_ce"),
            ("batchsize", "batch_size"),
            ("metis", "Metis"),
        ):
            self.assertEqual(suggest(written, known), f" (did you mean {meant!r}?)", written)

    def test_suggests_nothing_if_no_name_is_near(self):
        self.assertEqual(suggest("quark", ["random", "colocrl"]), "")
        self.assertEqual(suggest("quark", []), "")
        self.assertEqual(suggest("", ["random"]), "")


if __name__ == "__main__":
    absltest.main()
