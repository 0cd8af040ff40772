import sys
import types
from unittest import mock

from absl.testing import absltest

from tf_placer.text.notebook import UpdatedOutput


class UpdatedOutputTest(absltest.TestCase):
    def test_each_text_takes_the_place_of_the_one_before(self):
        display = mock.Mock()
        module = types.SimpleNamespace(HTML=str, display=display)
        modules = {"IPython": types.SimpleNamespace(display=module), "IPython.display": module}
        output = UpdatedOutput()
        self.assertFalse(output.is_shown)
        with mock.patch.dict(sys.modules, modules):
            output.show("one")
            output.show("two")
        self.assertTrue(output.is_shown)
        display.assert_called_once_with("one", display_id=True)
        display.return_value.update.assert_called_once_with("two")


if __name__ == "__main__":
    absltest.main()
