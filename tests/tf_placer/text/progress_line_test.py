import io
import sys
import types
from unittest import mock

from absl.testing import absltest

from tf_placer.text import progress_line
from tf_placer.text.progress_line import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class ProgressLineTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.time = self.enter_context(mock.patch.object(progress_line, "time"))
        self.time.monotonic.return_value = 5.0

    def test_each_text_takes_the_place_of_the_one_before(self):
        terminal = Terminal()
        line = ProgressLine(terminal)
        line.show("one")
        self.time.monotonic.return_value = 6.0
        line.show("two")
        line.clear()
        self.assertEqual(terminal.getvalue(), "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[K")

    def test_skips_updates_that_follow_too_fast(self):
        terminal = Terminal()
        line = ProgressLine(terminal)
        for tenths in range(10):
            self.time.monotonic.return_value = 5.0 + tenths / 10
            line.show(f"{tenths} ")
        self.assertLess(terminal.getvalue().count("\r"), 6)
        self.assertIn("0 ", terminal.getvalue())

    def test_a_file_gets_a_line_every_ten_seconds(self):
        file = io.StringIO()
        line = ProgressLine(file)
        for secs in range(25):
            self.time.monotonic.return_value = 5.0 + secs
            line.show(f"after {secs} s")
        line.clear()
        self.assertEqual(file.getvalue(), "after 10 s\nafter 20 s\n")

    def test_a_notebook_shows_one_line_and_removes_it_in_the_end(self):
        display, stream = mock.Mock(), io.StringIO()
        module = types.SimpleNamespace(HTML=str, display=display)
        modules = {"IPython": types.SimpleNamespace(display=module), "IPython.display": module}
        self.enter_context(mock.patch.dict(sys.modules, ipykernel=mock.Mock(), **modules))
        line = ProgressLine(stream)
        line.show("best <1> ms")
        self.time.monotonic.return_value = 6.0
        line.show("best 2 ms")
        line.clear()
        display.assert_called_once_with("<small>best &lt;1&gt; ms</small>", display_id=True)
        updates = [call.args[0] for call in display.return_value.update.call_args_list]
        self.assertEqual(updates, ["<small>best 2 ms</small>", ""])
        self.assertEmpty(stream.getvalue())

    def test_escapes_control_characters(self):
        terminal = mock.MagicMock(spec=io.StringIO)
        terminal.isatty.return_value = True
        ProgressLine(terminal).show("best \x1b[2J\r7")
        terminal.write.assert_called_once_with("\r\x1b[Kbest \\x1b[2J\\r7")


if __name__ == "__main__":
    absltest.main()
