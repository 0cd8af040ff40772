"""Tests of files of arguments."""

from __future__ import annotations

from absl.testing import absltest

from tf_placer.cli.flag_file import expand_flag_files


class FlagFileTest(absltest.TestCase):
    def file(self, text: str | bytes, name: str = "flags") -> str:
        return self.create_tempfile(
            name, text, mode="wb" if isinstance(text, bytes) else "w"
        ).full_path

    def test_arguments_without_a_file_stay_as_they_are(self):
        argv = ["search", "--seed=3", "--problem", "p.json"]
        self.assertEqual(expand_flag_files(argv), argv)

    def test_each_line_is_an_argument_where_the_file_stands(self):
        path = self.file(
            "# a comment\n\n--max_secs=3\n  // another\n  --fetches=a b, c  \n--json\n"
        )
        lines = ["--max_secs=3", "--fetches=a b, c", "--json"]
        for named in ([f"--flagfile={path}"], ["--flagfile", path]):
            self.assertEqual(
                expand_flag_files(["log", *named, "--seed=1"]), ["log", *lines, "--seed=1"]
            )

    def test_a_file_may_name_others(self):
        inner = self.file("--seed=4", "inner")
        outer = self.file(f"--seed=3\n--flagfile={inner}\n", "outer")
        self.assertEqual(expand_flag_files([f"--flagfile={outer}"]), ["--seed=3", "--seed=4"])

    def test_bad_files_are_named(self):
        path = f"{self.create_tempdir().full_path}/loop"
        with open(path, "w") as file:
            file.write(f"--flagfile={path}")
        with self.assertRaisesRegex(ValueError, "/loop names itself by --flagfile"):
            expand_flag_files([f"--flagfile={path}"])
        with self.assertRaisesRegex(ValueError, "/bytes is not a file of arguments"):
            expand_flag_files([f"--flagfile={self.file(bytes([0xFF, 0xFE]), 'bytes')}"])
        with self.assertRaisesRegex(OSError, "none"):
            expand_flag_files(["--flagfile=none"])
        for argv in (["--flagfile"], ["--flagfile="]):
            with self.assertRaisesRegex(ValueError, "--flagfile needs the name of a file"):
                expand_flag_files(argv)


if __name__ == "__main__":
    absltest.main()
