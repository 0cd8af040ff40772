"""Tests of sentences that are joined."""

from absl.testing import absltest

from tf_placer.text.sentences import join_sentences


class SentencesTest(absltest.TestCase):
    def test_joins_sentences_by_full_stops(self):
        joined = join_sentences("auto is faster", None, "a note: 1.5 s", "", "60 s were over")
        self.assertEqual(joined, "auto is faster. A note: 1.5 s. 60 s were over")

    def test_without_parts_there_is_no_sentence(self):
        self.assertEqual(join_sentences(None, ""), "")


if __name__ == "__main__":
    absltest.main()
