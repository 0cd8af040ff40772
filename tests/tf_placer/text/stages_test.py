import time
from unittest import mock

from absl.testing import absltest

from tf_placer.text import stages
from tf_placer.text.stages import Stages


class StagesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(mock.patch.object(stages, "_INTERVAL_SECS", 0.05))
        self.lines = []

    def wait_for(self, count):
        deadline = time.monotonic() + 60.0
        while len(self.lines) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertGreaterEqual(len(self.lines), count)

    def test_reports_that_a_long_stage_continues(self):
        with Stages(self.lines.append) as work:
            work.begin("reading")
            self.wait_for(3)
            work.begin("writing")
            self.wait_for(len(self.lines) + 2)
        self.assertEqual(self.lines[0], "reading")
        self.assertRegex(self.lines[1], r"^still reading: 0\.\d s so far$")
        self.assertIn("writing", self.lines)
        self.assertStartsWith(self.lines[-1], "still writing: ")

    def test_reports_the_progress_of_the_whole_work(self):
        with Stages(self.lines.append) as work:
            work.how_far = lambda: "7 of 10 s used"
            work.enter("measuring")
            self.wait_for(1)
        self.assertRegex(self.lines[0], r"^still measuring: 0\.\d s so far; 7 of 10 s used$")

    def test_the_first_report_may_come_earlier_than_the_others(self):
        with (
            mock.patch.object(stages, "_INTERVAL_SECS", 2.0),
            Stages(self.lines.append, first_secs=0.05) as work,
        ):
            work.enter("reading")
            self.wait_for(1)
            time.sleep(0.5)
        self.assertLen(self.lines, 1)
        self.assertRegex(self.lines[0], r"^still reading: 0\.\d s so far$|^still reading: .* ms so")

    def test_reports_nothing_after_the_end(self):
        with Stages(self.lines.append) as work:
            work.begin("reading")
        count = len(self.lines)
        time.sleep(0.2)
        self.assertLen(self.lines, count)

    def test_reports_nothing_before_the_first_stage(self):
        with Stages(self.lines.append):
            time.sleep(0.2)
        self.assertEqual(self.lines, [])

    def test_a_line_about_a_stage_postpones_the_next_report(self):
        with mock.patch.object(stages, "_INTERVAL_SECS", 3600.0), Stages(self.lines.append) as work:
            work.begin("searching")
            work.say("12 of 20 done")
        self.assertEqual(self.lines, ["searching", "12 of 20 done"])


if __name__ == "__main__":
    absltest.main()
