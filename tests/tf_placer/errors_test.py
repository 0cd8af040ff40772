from __future__ import annotations

from absl.testing import absltest, parameterized

from tf_placer.errors import describe_error


class ErrorTextTest(parameterized.TestCase):
    @parameterized.parameters(
        (OSError(2, "No such file", "a/b"), "a/b: No such file"),
        (OSError(2, "No such file", b"a/b"), "a/b: No such file"),
        (OSError(2, "No such file", ""), "a file with an empty name: No such file"),
        (OSError(9, "Bad file descriptor", 7), "file descriptor 7: Bad file descriptor"),
        (OSError(28, "No space left"), "No space left"),
        (OSError("nothing works"), "nothing works"),
        (ValueError("x is 3"), "x is 3"),
    )
    def test_messages_have_file_and_reason(self, error, text):
        self.assertEqual(describe_error(error), text)


if __name__ == "__main__":
    absltest.main()
