"""The code speaks plainly: docstrings, comments and names keep to docs/architecture.md.

Reads every source file; imports none of them. `python tests/words_test.py --list` prints each
finding with its file and line.
"""

from __future__ import annotations

import ast
import dataclasses
import io
import pathlib
import re
import sys
import tokenize
from collections.abc import Iterator

from absl.testing import absltest

# Under Bazel this file is a link into the source tree.
ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("benchmarks", "examples", "graph_passes", "tests", "tf_placer")

CLAUSE = re.compile(
    r"(what|how|which|whether|where|why|who|whose|whom|so (many|much|long)|of|that)\b",
    re.IGNORECASE,
)
IRREGULAR_PARTICIPLES = frozenset(
    word
    for line in (
        "begun bound broken brought built caught chosen done drawn driven eaten fallen felt found",
        "forgotten frozen given gone grown heard held hidden kept known laid led left lent lost",
        "made meant met paid proven said seen sent shaken shown slept sold spent stuck sworn",
        "taken thought thrown told torn understood undone won worn woven wound written",
    )
    for word in line.split()
)
# Verbs and nouns that end like participles.
NOT_PARTICIPLES = frozenset({"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed"})
BRITISH = re.compile(
    r"neighbour|colour|catalogue|favour|behaviour|labell|modell|centre|honour|judgement|artefact"
    r"|(?:initial|optim|normal|serial|minim|maxim|summar|organ|recogn|synchron|quant|penal|final"
    r"|random|regular|linear|parallel|vector|general|special|standard)is(?:e|ing|ation)",
    re.IGNORECASE,
)
# Functions that keep a participle as their name, with the reason.
PARTICIPLE_EXCEPTIONS: dict[str, str] = {}
# Functions that return this are named after the kind of graph they build, a noun phrase: the name
# is a row of tables of results.
KIND_OF_GRAPH = "StepGraph"
BRITISH_EXCEPTIONS: dict[str, str] = {
    "tf_placer/placers/former_names.py": "the names of options before they were American",
    "tests/words_test.py": "the list of British spellings",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A place that breaks a rule."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def python_files() -> Iterator[pathlib.Path]:
    """Yields the Python sources that people read."""
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def native_files() -> Iterator[pathlib.Path]:
    """Yields the C++ sources."""
    for pattern in ("*.cc", "*.h"):
        yield from sorted((ROOT / "tf_placer").rglob(pattern))


def find_clause_docstrings(kinds: tuple[type[ast.AST], ...]) -> list[Finding]:
    """Finds docstrings of modules, classes or functions that begin with a clause.

    Args:
        kinds: the syntax nodes to look at, such as `ast.Module`.
    """
    return [
        Finding(path, getattr(node, "lineno", 1), docstring.splitlines()[0])
        for path, tree in _parse_sources()
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        and (docstring := ast.get_docstring(node))  # type: ignore[arg-type]
        and CLAUSE.match(docstring)
    ]


def find_clause_comments() -> list[Finding]:
    """Finds comment blocks, in Python and C++, that begin with a clause."""
    return [
        Finding(str(path.relative_to(ROOT)), line, text)
        for path in (*python_files(), *native_files())
        for line, text in _comment_blocks(path)
        if CLAUSE.match(text)
    ]


def find_participles() -> list[Finding]:
    """Finds functions whose name begins with a participle, which hides what they do."""
    return [
        Finding(path, node.lineno, node.name)
        for path, tree in _parse_sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        and not (node.returns and ast.unparse(node.returns) == KIND_OF_GRAPH)
        and is_participle(node.name.strip("_").split("_")[0])
        and node.name not in PARTICIPLE_EXCEPTIONS
    ]


def find_british_spellings() -> list[Finding]:
    """Finds British spellings in names and text of Python, C++ and the manual."""
    manual = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))
    return [
        Finding(path, number, line.strip())
        for file in (*python_files(), *native_files(), *manual)
        if (path := str(file.relative_to(ROOT))) not in BRITISH_EXCEPTIONS
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if BRITISH.search(line)
    ]


def is_participle(word: str) -> bool:
    """Returns whether a word is a past participle."""
    if word in IRREGULAR_PARTICIPLES:
        return True
    return len(word) > 3 and word.endswith("ed") and word not in NOT_PARTICIPLES


def _parse_sources() -> Iterator[tuple[str, ast.Module]]:
    for path in python_files():
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def _comment_blocks(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Yields the first line of each run of comment lines, with its number."""
    previous = -1
    for line, text, is_whole_line in _comments(path):
        if not (is_whole_line and line == previous + 1):
            yield line, text
        previous = line if is_whole_line else -1


def _comments(path: pathlib.Path) -> Iterator[tuple[int, str, bool]]:
    source = path.read_text()
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                is_whole_line = not token.line[: token.start[1]].strip()
                yield token.start[0], token.string.lstrip("#: "), is_whole_line
        return
    for number, line in enumerate(source.splitlines(), 1):
        code, slashes, text = line.partition("//")
        if slashes:
            yield number, text.lstrip("/ "), not code.strip()


class WordsTest(absltest.TestCase):
    def assert_none(self, findings, rule):
        lines = "\n".join(map(str, findings))
        self.assertFalse(findings, f"{len(findings)} places break the rule '{rule}':\n{lines}")

    def test_docstrings_begin_with_a_verb_or_a_noun_phrase(self):
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        self.assert_none(find_clause_docstrings(kinds), "no clause as a docstring's beginning")

    def test_comments_begin_with_a_subject(self):
        self.assert_none(find_clause_comments(), "no clause as a comment's beginning")

    def test_functions_are_verbs(self):
        self.assert_none(find_participles(), "no participle as a function's name")

    def test_spelling_is_american(self):
        self.assert_none(find_british_spellings(), "American spelling")

    def test_exceptions_are_needed(self):
        names = {
            node.name
            for _, tree in _parse_sources()
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
        }
        self.assertLessEqual(set(PARTICIPLE_EXCEPTIONS), names)
        self.assertLessEqual(len(PARTICIPLE_EXCEPTIONS), 15)
        for path in BRITISH_EXCEPTIONS:
            self.assertRegex((ROOT / path).read_text(), BRITISH)

    def test_rules_recognize_what_they_refuse(self):
        for text in ("What is kept.", "So many rounds.", "Of a group.", "How long it takes."):
            self.assertRegex(text, CLAUSE)
        for text in ("Offers a device.", "A group.", "Whatsoever.", "Thatched roofs."):
            self.assertNotRegex(text, CLAUSE)
        for word in ("made", "measured", "heard"):
            self.assertTrue(is_participle(word))
        for word in ("feed", "measure", "need", "red"):
            self.assertFalse(is_participle(word))
        self.assertRegex("initialise_colours", BRITISH)
        self.assertNotRegex("initialize_colors, is_normal, is_final", BRITISH)


def list_findings() -> None:
    """Prints every finding, one to a line, for each rule with its number."""
    every_kind = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for rule, findings in (
        ("clauses as docstrings of modules", find_clause_docstrings((ast.Module,))),
        ("clauses as docstrings", find_clause_docstrings(every_kind)),
        ("clauses as comments", find_clause_comments()),
        ("participles", find_participles()),
        ("British spellings", find_british_spellings()),
    ):
        print(f"== {rule}: {len(findings)}")
        print(*findings, sep="\n")


if __name__ == "__main__":
    if "--list" in sys.argv:
        list_findings()
    else:
        absltest.main()
