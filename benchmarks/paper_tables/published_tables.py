"""The tables of the papers: which model on which machine, which method, which placer that is here.

References:
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017, table 2
    and section 4.3. Gao, Chen, Li, Post: Device Placement with Cross-Entropy Minimization
    and Proximal Policy Optimization, NeurIPS 2018, table 1. Lan, Chen, Li, EAGLE: Expedited Device
    Placement with Automatic Grouping for Large Models, tables I to IV.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from benchmarks.paper_tables.published import COLOCRL, EAGLE, POST, Published, find_published

__all__ = ["TABLES", "Column", "Gain", "PaperTable", "Row"]

_Options = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Row:
    """A model on a machine.

    Attributes:
        title: of the model, as the paper prints it.
        model: of the catalog.
        machine: name of a described machine.
        num_gpus: of the machine, as the published numbers say it; None where they do not.
        expert: placer and options of what the paper calls the expert for this model; None if it
            has none.
    """

    title: str
    model: str
    machine: str
    num_gpus: int | None
    expert: tuple[str, _Options] | None = ("model_expert", ())


@dataclasses.dataclass(frozen=True)
class Column:
    """A method.

    Attributes:
        title: for people.
        placer: one of `run_placers.ALL_PLACERS`; None for the expert of the row.
        options: of the placer.
        method: what the published numbers call it; None where the paper does not have it.
        is_baseline: whether it is what people do without a learned placer.
    """

    title: str
    placer: str | None
    options: _Options = ()
    method: str | None = None
    is_baseline: bool = False

    def placer_for(self, row: Row) -> tuple[str, _Options] | None:
        """Finds the placer and its options in a row; None if the row has no expert."""
        return row.expert if self.placer is None else (self.placer, self.options)


@dataclasses.dataclass(frozen=True)
class Gain:
    """The improvement that a paper reports for a method.

    Attributes:
        title: for people.
        method: title of the column of the method.
        over: titles of the columns it is compared with; the fastest of them counts.
        is_reduction: whether it is 1 - new/old instead of old/new - 1.
    """

    title: str
    method: str
    over: tuple[str, ...]
    is_reduction: bool


@dataclasses.dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Attributes:
        name: for files and flags.
        title: for people.
        paper: title of the paper.
        table: what the published numbers call it.
        rows: see `Row`.
        columns: see `Column`.
        gain: what the paper says that its method is better by, or None.
        note: what else is to be known about it, or nothing.
    """

    name: str
    title: str
    paper: str
    table: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    gain: Gain | None = None
    note: str = ""

    def find_published_of(self, row: Row, column: Column) -> Published | None:
        """Finds the printed number of a cell; None if there is none."""
        if column.method is None:
            return None
        return find_published(
            self.paper, self.table, row.title, column.method, num_gpus=row.num_gpus
        )


_PAPER_SUFFIXES = (":published", ":variant")
_MERGED = ("model_expert", (("rule", "expert_merged"),))
# ColocRL cuts Inception-V3 into contiguous parts because nobody places it on several GPUs.
_CUTS = ("expert", ())


def _baseline(title: str, placer: str | None, method: str | None = None) -> Column:
    return Column(title, placer, method=method, is_baseline=True)


def _add_today(*columns: Column) -> tuple[Column, ...]:
    """Adds, behind paper presets, the defaults."""
    now = [
        Column(f"{column.title}, now", column.placer.rpartition(":")[0], column.options)
        for column in columns
        if column.placer and column.placer.endswith(_PAPER_SUFFIXES)
    ]
    return (*columns, *now)


_COLOCRL_2 = PaperTable(
    name="colocrl_2",
    title="ColocRL, table 2: seconds per step on 2 and 4 K80",
    paper=COLOCRL,
    table="Table 2",
    rows=tuple(
        Row(title, model, f"{gpus}xK80", gpus, expert)
        for title, model, expert in (
            ("RNNLM", "rnnlm_2", ("model_expert", ())),
            ("NMT", "nmt_2", _MERGED),
            ("Inception-V3", "inception_v3", _CUTS),
        )
        for gpus in (2, 4)
    ),
    columns=(
        _baseline("Single-CPU", "single_cpu", "Single-CPU"),
        _baseline("Single-GPU", "single_gpu", "Single-GPU"),
        _baseline("Scotch", "scotch", "Scotch"),
        _baseline("MinCut", "mincut", "MinCut"),
        _baseline("Expert", None, "Expert"),
        *_add_today(Column("RL-based", "colocrl:published", method="RL-based")),
    ),
    gain=Gain(
        "RL-based over the fastest baseline",
        "RL-based",
        ("Single-CPU", "Single-GPU", "Scotch", "MinCut", "Expert"),
        is_reduction=False,
    ),
)
_COLOCRL_LARGE = PaperTable(
    name="colocrl_large",
    title="ColocRL, section 4.3: models that no GPU has room for, seconds per step",
    paper=COLOCRL,
    table="text 4.3",
    rows=(
        Row("RNNLM (large)", "rnnlm_large", "4xK80", None),
        Row("NMT (large)", "nmt_large", "4xK80", None, _MERGED),
    ),
    columns=(
        _baseline("Single-CPU", "single_cpu"),
        _baseline("Single-GPU", "single_gpu"),
        _baseline("Scotch", "scotch"),
        _baseline("MinCut", "mincut"),
        _baseline("Expert", None),
        _baseline("Greedy fill", "greedy_fill"),
        _baseline("m-ETF", "m_etf"),
        _baseline("m-SCT", "m_sct"),
        *_add_today(
            Column("RL-based", "colocrl:published", method="RL-based"),
            Column("Post", "post:published"),
        ),
    ),
    note="The paper does not say how many GPUs there were; 4 are assumed.",
)
_POST_1 = PaperTable(
    name="post_1",
    title="Post, table 1: seconds per step on 2, 4 and 8 K80",
    paper=POST,
    table="Table 1",
    rows=tuple(
        Row(title, model, f"post-{gpus}xK80", gpus, expert)
        for title, model, gpus, expert in (
            ("RNNLM", "rnnlm_4", 2, ("model_expert", ())),
            ("ResNet-50", "resnet_50", 2, ("model_expert", ())),
            ("ResNet-200", "resnet_200", 2, ("model_expert", ())),
            ("ResNet-50", "resnet_50", 4, ("model_expert", ())),
            ("ResNet-101", "resnet_101", 8, ("model_expert", ())),
            ("Inception-V3", "inception_v3", 2, ("model_expert", ())),
            ("Inception-V3", "inception_v3", 4, ("model_expert", ())),
            ("Inception-V3", "inception_v3", 8, ("model_expert", ())),
            ("NMT (2-layer)", "nmt_2", 2, _MERGED),
            ("NMT (4-layer)", "nmt_4", 4, _MERGED),
            ("NMT (8-layer)", "nmt_8", 8, _MERGED),
        )
    ),
    columns=(
        _baseline("Single GPU", "single_gpu", "Single GPU"),
        _baseline("Expert", None, "Expert"),
        _baseline("Metis", "metis", "Metis"),
        *_add_today(
            Column("Policy Gradient", "policy_gradient:variant", method="Policy Gradient"),
            Column("Post", "post:published", method="Post"),
            # The paper shows these two as curves only.
            Column("PPO only", "post_ppo:published"),
            Column("CE only", "post_ce"),
        ),
    ),
    gain=Gain("Post over Policy Gradient", "Post", ("Policy Gradient",), is_reduction=True),
)
_EAGLE_ROWS = (
    Row("Inception-V3", "inception_v3_batch_1", "eagle-4xP100", 4),
    Row("GNMT", "gnmt_4", "eagle-4xP100", 4),
    Row("BERT", "bert_base", "eagle-4xP100", 4, None),
)


def _eagle(number: int, title: str, columns: tuple[Column, ...], note: str = "") -> PaperTable:
    numeral = ("I", "II", "III", "IV")[number - 1]
    return PaperTable(
        name=f"eagle_{number}",
        title=f"EAGLE, table {numeral}: {title}, seconds per step on 4 P100",
        paper=EAGLE,
        table=f"Table {numeral}",
        rows=_EAGLE_ROWS,
        columns=(
            _baseline("Single GPU", "single_gpu", "Single GPU" if number == 4 else None),
            _baseline("Human Experts", None, "Human Experts" if number == 4 else None),
            *_add_today(*columns),
        ),
        note=note,
    )


_EAGLE_TABLES = (
    _eagle(
        1,
        "groupers",
        tuple(
            Column(
                title,
                "hierarchical:variant",
                (("grouper", grouper),),
                f"Hierarchical model + {method}",
            )
            for title, grouper, method in (
                ("Feed-forward", "feed_forward", "feed-forward grouper"),
                ("METIS", "metis", "METIS grouper"),
                ("Networkx", "fluid", "Networkx grouper"),
            )
        ),
    ),
    _eagle(
        2,
        "policies on the groups of METIS",
        (
            Column(
                "Seq2Seq (before)",
                "eagle_metis:published",
                (("attention", "before"),),
                "METIS grouper + Seq2Seq (attention before decoder)",
            ),
            Column(
                "Seq2Seq (after)",
                "eagle_metis:published",
                (("attention", "after"),),
                "METIS grouper + Seq2Seq (attention after decoder)",
            ),
            Column("GCN", "eagle_gcn:published", (), "METIS grouper + GCN"),
        ),
        "The printed column for attention after the decoder has the numbers of table I's "
        "feed-forward grouper.",
    ),
    _eagle(
        3,
        "algorithms",
        (
            Column("REINFORCE", "eagle_reinforce:published", (), "EAGLE (REINFORCE)"),
            Column("PPO", "eagle:published", (), "EAGLE (PPO)"),
            Column("PPO+CE", "eagle_ppo_ce:published", (), "EAGLE (PPO+CE)"),
        ),
    ),
    _eagle(
        4,
        "all approaches",
        (
            # The options that table I has, so that the run is the same.
            Column(
                "Hierarchical Planner",
                "hierarchical:variant",
                (("grouper", "feed_forward"),),
                "Hierarchical Planner",
            ),
            Column("Post", "post:published", (), "Post"),
            Column("EAGLE (PPO)", "eagle:published", (), "EAGLE (PPO)"),
            Column("EAGLE (PPO+CE)", "eagle_ppo_ce:published", (), "EAGLE (PPO+CE)"),
        ),
    ),
)

TABLES: Mapping[str, PaperTable] = {
    table.name: table for table in (_COLOCRL_2, _COLOCRL_LARGE, _POST_1, *_EAGLE_TABLES)
}
"""The tables of step times by name."""
