"""Tests of the tables of the papers, on runs made by hand."""

from __future__ import annotations

from absl.testing import absltest

from benchmarks.harness.placement_runs import RunKey
from benchmarks.paper_tables.published import POST
from benchmarks.paper_tables.published_tables import Column, Gain, PaperTable, Row
from benchmarks.paper_tables.report import table_cells, table_markdown
from tests.benchmarks.made_up_runs import make_failed_run, run

_TABLE = PaperTable(
    name="post",
    title="Post, some of table 1",
    paper=POST,
    table="Table 1",
    rows=(
        Row("RNNLM", "rnnlm_4", "post-2xK80", 2),
        Row("NMT (2-layer)", "nmt_2", "post-2xK80", 2, None),
    ),
    columns=(
        Column("Single GPU", "single_gpu", method="Single GPU", is_baseline=True),
        Column("Expert", None, method="Expert", is_baseline=True),
        Column("Policy Gradient", "policy_gradient", method="Policy Gradient"),
        Column("Post", "post", method="Post"),
        Column("CE only", "post_ce"),
    ),
    gain=Gain("Post over Policy Gradient", "Post", ("Policy Gradient",), is_reduction=True),
    note="Some of it.",
)


def _key(row, column, seed=0):
    return RunKey(row.model, row.machine, *column.placer_for(row), seed)


def _runs(row, column):
    """RNNLM: 0.5, 0.4, 0.8, 0.4 and a failure. NMT: nothing fits, no expert, 2, 1 and too late."""
    if column.placer_for(row) is None:
        return []
    key = _key(row, column)
    if row.model == "rnnlm_4":
        secs = {"Single GPU": 0.5, "Expert": 0.4, "Policy Gradient": 0.8, "Post": 0.4}
        if column.title == "CE only":
            return [make_failed_run(key, "pip install something")]
        if column.title == "Post":
            return [run(key, 0.6), run(_key(row, column, 1), secs["Post"], lower_bound_secs=0.2)]
        return [run(key, secs[column.title])]
    if column.title == "CE only":
        return [run(key, None, samples=0, failures=0, ended="secs", mean_secs=[])]
    if column.title == "Policy Gradient":
        return [run(key, 2.0, samples=61, ended="secs")]
    return [run(key, {"Single GPU": None, "Post": 1.0}[column.title])]


def _lines():
    page = table_markdown(_TABLE, table_cells(_TABLE, _runs))
    return [line for line in page.splitlines() if line.startswith("| ")], page


class TableReportTest(absltest.TestCase):
    def test_a_cell_is_ours_and_what_was_printed(self):
        lines, _ = _lines()
        self.assertEqual(
            lines[2],
            "| RNNLM | 2 | 0.500 (0.44) | **0.400** (0.89) | 0.800 (0.66) | **0.400** (0.44) "
            "| failed | Expert 0.400 | 0.200 | 2.00 | 50.0% (33.3%) |",
        )

    def test_out_of_memory_and_out_of_time_are_said(self):
        lines, page = _lines()
        self.assertEqual(
            lines[3],
            "| NMT (2-layer) | 2 | OOM (OOM) | none (2.05) | 2.00 † (2.3) | **1.00** (1.22) "
            "| no answer in time † | none fits | 0.250 | 4.00 | 50.0% (47.0%) |",
        )
        self.assertIn(
            "Policy Gradient, NMT (2-layer) on post-2xK80: after 61 of 2400 samples", page
        )

    def test_samples_and_failures_of_learned_methods_are_said(self):
        lines, page = _lines()
        self.assertEqual(lines[-2:], ["| RNNLM | 2 | 100, 0% | 100, 0% |  |",
                                      "| NMT (2-layer) | 2 | 61, 0% | 100, 0% | 0 |"])  # fmt: skip
        self.assertIn("Each cell has 1 to 2 seeds.", page)

    def test_the_page_says_what_failed(self):
        _, page = _lines()
        self.assertStartsWith(page, "# Post, some of table 1\n")
        self.assertIn("- CE only, RNNLM on post-2xK80: pip install something", page)
        self.assertIn("Some of it.", page)


if __name__ == "__main__":
    absltest.main()
