"""Tests of the command `report`: its files and errors."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pathlib
import unittest
from unittest import mock
from xml.etree import ElementTree

from absl.testing import absltest

from tests.tf_placer.small_problem import small_problem
from tf_placer.cli.main import main
from tf_placer.problem.problem_file import write_problem
from tf_placer.report.page import page


def setUpModule():
    try:
        page.require_page_libraries()
    except ImportError as error:
        raise unittest.SkipTest(str(error)) from error


class ReportCommandTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        write_problem(small_problem(), self.path("problem.json"))
        self.call(
            *("search", f"--problem={self.path('problem.json')}", "--placer=random"),
            *("--max_trials=20", f"--output={self.path('best.json')}"),
            f"--log_dir={self.path('run')}",
        )

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def call(self, *arguments: str) -> str:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            main(arguments)
        return output.getvalue()

    def assert_refused(self, message: str, *arguments: str):
        before = sorted(os.listdir(self.directory))
        with self.assertRaises(SystemExit) as raised:
            self.call("report", *arguments)
        self.assertRegex(str(raised.exception.code), f"^tf_placer: .*{message}")
        self.assertEqual(sorted(os.listdir(self.directory)), before)

    def test_a_page_of_a_planned_search(self):
        output = self.path("page.html")
        printed = self.call("report", self.path("run"), f"--output={output}")
        self.assertEqual(printed, f"page: {output}\n")
        text = pathlib.Path(output).read_text()
        self.assertStartsWith(text, "<!doctype html>")
        self.assertNotRegex(text, r"""<(script|link|img)[^>]*(src|href)=["']https?:""")

    def test_a_result_elsewhere_needs_the_problem(self):
        self.assert_refused("give the problem, too", self.path("best.json"), "--output=x.html")
        output = self.path("page.html")
        self.call(
            *("report", self.path("best.json"), f"--problem={self.path('problem.json')}"),
            f"--output={output}",
        )
        self.assertIn("The record of the search was not kept", pathlib.Path(output).read_text())

    def test_two_runs_make_one_page(self):
        self.call(
            *("search", f"--problem={self.path('problem.json')}", "--placer=metis"),
            *(f"--output={self.path('best.json')}", f"--log_dir={self.path('other')}"),
        )
        output = self.path("page.html")
        runs = (self.path("run"), self.path("other"))
        self.assertEqual(self.call("report", *runs, f"--output={output}"), f"page: {output}\n")
        text = pathlib.Path(output).read_text()
        for each in ("A · ", "B · ", "chart-time-0-1", "chart-time-1-1", "Both are simulated"):
            self.assertIn(each, text)

    def test_several_runs_make_one_page_with_a_table_of_prices(self):
        runs = [self.path(name) for name in ("run", "metis", "random")]
        for path in runs[1:]:
            self.call(
                *("search", f"--problem={self.path('problem.json')}", "--max_trials=5"),
                f"--placer={pathlib.Path(path).name}",
                *(f"--output={self.path('best.json')}", f"--log_dir={path}"),
            )
        output = self.path("page.html")
        self.call("report", *runs, f"--output={output}", "--price=run=3.6", "--price=metis=7.2")
        text = pathlib.Path(output).read_text()
        self.assertRegex(text, '<p class="eyebrow">tf_placer · run · .* and 2 more</p>')
        for name, path in zip("ABC", runs, strict=True):
            self.assertIn(f"{name} · {path} · ", text)
        self.assertRegex(text, r'data-label="price/h">3\.60</td>')
        self.assertRegex(text, r'data-label="price/h">-</td>')
        self.assertRegex(text, r"[AB] \(.*\) is the cheapest of the 2 with a price: ")
        self.assert_refused("is not compared", *runs, "--price=other=1")

    def test_graphs_without_common_operations_are_refused(self):
        other = dataclasses.replace(small_problem(), operation_names=("x", "y", "z"))
        write_problem(other, self.path("other.json"))
        self.call(
            *("search", f"--problem={self.path('other.json')}", "--placer=random"),
            *("--max_trials=20", f"--output={self.path('best.json')}"),
            f"--log_dir={self.path('other')}",
        )
        runs = (self.path("run"), self.path("other"))
        self.assert_refused(
            "of different graphs: of 3 operations they have 0 in common: make a page of each", *runs
        )
        self.assert_refused("shows at most 26 runs, not 27", *([self.path("run")] * 27))
        self.assert_refused("give --follow and other pictures one RUN", *runs, "--follow")
        self.assert_refused("give --follow and other pictures one RUN", *runs, "--picture=p.png")

    def test_a_search_that_has_ended_is_followed_by_one_page(self):
        output = self.path("page.html")
        with mock.patch.object(os, "nice"):
            printed = self.call("report", self.path("run"), "--follow", f"--output={output}")
        self.assertEqual(printed, f"page: {output}\nthe search has ended: the page is final\n")
        self.assertNotIn("location.reload", pathlib.Path(output).read_text())
        self.assert_refused("ask for pictures", self.path("run"), "--follow", "--picture=p.png")

    def test_pictures_are_written_by_their_ending(self):
        for name, start in (("p.png", b"\x89PNG"), ("p.svg", b"<?xml"), ("p.pdf", b"%PDF")):
            for flag in ("picture", "time_picture"):
                with self.subTest(name, flag=flag):
                    path = self.path(f"{flag}_{name}")
                    printed = self.call("report", self.path("run"), f"--{flag}={path}")
                    self.assertEqual(printed, f"picture: {path}\n")
                    self.assertStartsWith(pathlib.Path(path).read_bytes(), start)
        self.assertFalse(os.path.exists("report.html"))

    def test_several_searches_are_in_one_picture(self):
        for runs in (["run"], ["run", "run"]):
            path = self.path(f"{len(runs)}.svg")
            printed = self.call("report", *map(self.path, runs), f"--search_picture={path}")
            self.assertEqual(printed, f"picture: {path}\n")
            svg = pathlib.Path(path).read_text()
            ElementTree.fromstring(svg)
            self.assertIn("samples", svg)
        self.assert_refused(
            "several runs make a page and a --search_picture",
            *(self.path("run"), self.path("run"), "--picture=p.png"),
        )

    def test_the_default_page_replaces_nothing_but_a_page(self):
        with contextlib.chdir(self.directory):
            pathlib.Path("report.html").write_text("<title>mine</title>")
            self.assert_refused("'report.html' exists, and is no page", "run")
            self.assertEqual(pathlib.Path("report.html").read_text(), "<title>mine</title>")
            os.unlink("report.html")
            for _ in range(2):
                self.assertEqual(self.call("report", "run"), "page: report.html\n")

    def test_names_are_shown_as_they_are(self):
        names = ("$\\frac{$/\x1b[31ma", "<script>b\u202e", "$$c$$/\x07")
        devices = ("$\\bad{$\x1b]0;x\x07", "<img src=x>\u2066")
        problem = small_problem()
        renamed = dict(zip(("cpu", "gpu"), devices, strict=True))
        hostile = dataclasses.replace(
            problem,
            operation_names=names,
            devices=tuple(
                dataclasses.replace(each, name=renamed[each.name], kind="$K$\x1b")
                for each in problem.devices
            ),
            links=tuple(
                dataclasses.replace(
                    each, source=renamed[each.source], destination=renamed[each.destination]
                )
                for each in problem.links
            ),
        )
        write_problem(hostile, self.path("hostile.json"))
        printed = self.call(
            *("search", f"--problem={self.path('hostile.json')}", "--placer=random"),
            *("--max_trials=20", f"--output={self.path('best.json')}"),
            f"--log_dir={self.path('hostile')}",
        )
        files = [self.path(name) for name in ("page.html", "place.svg", "time.svg")]
        flags = ("--output", "--picture", "--time_picture")
        self.call(
            "report",
            self.path("hostile"),
            *(f"{flag}={path}" for flag, path in zip(flags, files, strict=True)),
        )
        for text in (printed, *(pathlib.Path(path).read_text() for path in files)):
            for active in ("\x1b", "\x07", "b\u202e", ">\u2066"):
                self.assertNotIn(active, text)
        for path in files:
            text = pathlib.Path(path).read_text()
            for element in ("<img src=x", "<script>b"):
                self.assertNotIn(element, text)
        for path in files[1:]:
            ElementTree.parse(path)

    def test_bad_input(self):
        run = self.path("run")
        self.assert_refused("a picture ends with .png, .svg or .pdf", run, "--picture=p.gif")
        self.assert_refused("no/p.png", run, f"--picture={self.path('no/p.png')}")
        self.assert_refused("No such file", self.path("nothing"), f"--output={self.path('x.html')}")
        with mock.patch.object(page, "_LIBRARIES", ("bokeh", "no_such_library")):
            self.assert_refused(
                r"a report needs no_such_library: pip install 'tf_placer\[report\]'", run
            )


if __name__ == "__main__":
    absltest.main()
