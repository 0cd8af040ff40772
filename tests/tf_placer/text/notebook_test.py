import sys
from unittest import mock

from absl.testing import absltest

from tf_placer.text.notebook import is_notebook


class NotebookTest(absltest.TestCase):
    def test_a_notebook_is_a_process_with_the_kernel_and_its_displays(self):
        self.assertFalse(is_notebook())
        with mock.patch.dict(sys.modules, IPython=mock.Mock()):
            self.assertFalse(is_notebook())
            with mock.patch.dict(sys.modules, ipykernel=mock.Mock()):
                self.assertTrue(is_notebook())


if __name__ == "__main__":
    absltest.main()
