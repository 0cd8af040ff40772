"""The rooms of the project depend on each other in one direction, and BUILD files say so.

Reads the imports of every module and the targets of every BUILD file; imports none of them.
"""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping

from absl.testing import absltest

# Under Bazel this file is a link into the source tree.
ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("graph_passes", "tf_placer", "examples", "benchmarks")
TENSORFLOW = "//:expect_tensorflow_installed"

# Every module lies in one of these rooms, and depends only on modules of its own room and of those
# above it, directly or indirectly. A name stands for all modules below it.
LAYERS = (
    ("graph_passes",),
    (
        "tf_placer.descriptors",
        "tf_placer.errors",
        "tf_placer.files",
        "tf_placer.former_keywords",
        "tf_placer.interpreter",
        "tf_placer.interrupts",
        "tf_placer.library_build",
        "tf_placer.patches",
        "tf_placer.private_network",
        "tf_placer.fork_server",
        "tf_placer.processes",
        "tf_placer.temporary_directory",
        "tf_placer.start_up_messages",
    ),
    ("tf_placer.native", "tf_placer.native_pass", "tf_placer.text"),
    ("tf_placer.machines", "tf_placer.problem"),
    ("tf_placer.emulated",),
    ("tf_placer.inputs", "tf_placer.simulation"),
    ("tf_placer.environments", "tf_placer.functions"),
    # Costs come later: a graph that is too large for one device is profiled under a placement.
    ("tf_placer.placers",),
    ("tf_placer.costs",),
    ("tf_placer.search",),
    ("tf_placer.confirmation", "tf_placer.report"),
    ("tf_placer.planning", "tf_placer.runs"),
    ("tf_placer.live",),
    ("tf_placer.scripts",),
    ("tf_placer.cli", "tf_placer.__main__"),
    ("examples",),
    ("benchmarks",),
    ("tests",),
)
# The face of the package is in no room: it imports nothing before it is asked for a name.
FACE = "tf_placer"
_DOTTED_NAME = rf"({'|'.join(PACKAGES)})(\.\w+)+"
# The modules that heuristics and learned placers may import: groups, measurements and problems, but
# nothing that runs steps.
SEEN_BY_PLACERS = (
    "graph_passes.grouping.fluid_communities",
    "graph_passes.grouping.group_graph",
    "graph_passes.grouping.merged_groups",
    "graph_passes.grouping.metis",
    "graph_passes.grouping.undirected",
    "graph_passes.util.json_records",
    "graph_passes.util.messages",
    "graph_passes.util.suggestions",
    "graph_passes.util.topological_order",
    "tf_placer.environments.environment",
    "tf_placer.interpreter",
    "tf_placer.placers",
    "tf_placer.problem",
    "tf_placer.temporary_directory",
)
# Placers that search in simulation.
SIMULATING = ("tf_placer.placers.auto", "tf_placer.placers.learned.pretraining")
# Interfaces and modules that work on problems must not need TensorFlow, directly or indirectly,
# because importing it is slow.
WITHOUT_TENSORFLOW = (
    "benchmarks.problems.experts",
    "benchmarks.models.catalog",
    "benchmarks.models.training_model",
    "graph_passes.grouping.fluid_communities",
    "graph_passes.grouping.group_graph",
    "graph_passes.grouping.merged_groups",
    "graph_passes.grouping.metis",
    "tf_placer.cli.arguments",
    "tf_placer.cli.machines_command",
    "tf_placer.cli.placers_command",
    "tf_placer.cli.search_command",
    "tf_placer.environments.environment",
    "tf_placer.environments.simulated",
    "tf_placer.inputs.step",
    "tf_placer.machines.attached_machine",
    "tf_placer.machines.backends",
    "tf_placer.machines.catalog",
    "tf_placer.machines.cluster_machine",
    "tf_placer.machines.device_classes",
    "tf_placer.machines.emulated_machine",
    "tf_placer.machines.local_machine",
    "tf_placer.machines.lookup",
    "tf_placer.machines.machine",
    "tf_placer.machines.machine_table",
    "tf_placer.patches",
    "tf_placer.placers.auto",
    "tf_placer.placers.resolved_config",
    "tf_placer.placers.heuristics",
    "tf_placer.placers.making",
    "tf_placer.placers.components",
    "tf_placer.placers.placer",
    "tf_placer.placers.registry",
    "tf_placer.placers.presets",
    "tf_placer.planning.compare",
    "tf_placer.planning.plan",
    "tf_placer.planning.explanation",
    "tf_placer.planning.simulated_step",
    "tf_placer.problem",
    "tf_placer.report",
    "tf_placer.search.batches",
    "tf_placer.search.budget",
    "tf_placer.search.config",
    "tf_placer.search.distributed.controllers",
    "tf_placer.search.distributed.island_search",
    "tf_placer.search.distributed.ray_backend",
    "tf_placer.search.distributed.straggler_detection",
    "tf_placer.search.distributed.worker_events",
    "tf_placer.search.distributed.workers",
    "tf_placer.search.driver",
    "tf_placer.search.proposals",
    "tf_placer.search.runner",
    "tf_placer.search.simulated_search",
    "tf_placer.search.training_log",
    "tf_placer.search.training_recorder",
    "tf_placer.simulation",
    "tf_placer.text",
)
# The only module that imports Ray, except for a test that kills nodes.
RAY = "tf_placer.search.distributed.ray_backend"
GRAPH_PASSES_MAY_IMPORT = {
    "absl",
    "google",
    "graph_passes",
    "networkx",
    "numpy",
    "pymetis",
    "tensorflow",
}


@dataclasses.dataclass(frozen=True)
class Module:
    """A source file.

    Attributes:
        name: "tf_placer.inputs.step"; a package has the name of its folder.
        path: the file.
        tree: its syntax tree.
    """

    name: str
    path: pathlib.Path
    tree: ast.Module

    @property
    def has_code(self) -> bool:
        """True if the file has more than a docstring."""
        return any(
            not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            for node in self.tree.body
        )


@dataclasses.dataclass(frozen=True)
class Target:
    """A Python target of a BUILD file; `sources` are module names and `deps` full labels."""

    label: str
    rule: str
    sources: tuple[str, ...]
    deps: tuple[str, ...]


def module_name(path: pathlib.Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read_modules() -> dict[str, Module]:
    paths = [path for folder in (*PACKAGES, "tests") for path in (ROOT / folder).rglob("*.py")]
    return {
        module_name(path): Module(module_name(path), path, ast.parse(path.read_text(), str(path)))
        for path in sorted(paths)
    }


def read_targets() -> dict[str, Target]:
    builds = [ROOT / "BUILD"]
    for folder in (*PACKAGES, "tests"):
        builds += sorted((ROOT / folder).rglob("BUILD"))
    return {target.label: target for build in builds for target in read_build_file(build)}


def read_build_file(build: pathlib.Path) -> Iterator[Target]:
    """The Python targets of a BUILD file, which is executed: Starlark is a part of Python."""
    package = build.parent.relative_to(ROOT).as_posix().removeprefix(".")
    targets = []

    def glob(include: list[str], exclude: list[str] = (), **_: object) -> list[str]:
        matches = {path for pattern in include for path in build.parent.glob(pattern)}
        matches -= {path for pattern in exclude for path in build.parent.glob(pattern)}
        return [path.relative_to(build.parent).as_posix() for path in sorted(matches)]

    def full_label(label: str) -> str:
        if label.startswith(":"):
            return f"//{package}{label}"
        folder, colon, name = label.removeprefix("//").partition(":")
        return f"//{folder}:{name if colon else folder.rsplit('/', 1)[-1]}"

    def source_path(source: str) -> pathlib.Path:
        folder, colon, name = source.removeprefix("//").partition(":")
        return ROOT / folder / name if colon else build.parent / source

    def recorder(rule: str) -> Callable[..., None]:
        def record(name: str, srcs: list[str] = (), deps: list[str] = (), **_: object) -> None:
            sources = tuple(module_name(source_path(source)) for source in srcs)
            labels = tuple(full_label(label) for label in deps if not label.startswith("@"))
            targets.append(Target(f"//{package}:{name}", rule, sources, labels))

        return record

    names: dict[str, object] = {
        rule: recorder(rule) for rule in ("py_binary", "py_library", "py_test")
    }
    for ignored in ("cc_binary", "exports_files", "filegroup", "load", "package", "test_suite"):
        names[ignored] = lambda *_args, **_kwargs: None
    exec(compile(build.read_text(), str(build), "exec"), {**names, "glob": glob})
    return iter(targets)


class _WithoutTypeChecking(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> ast.AST | None:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            return None
        return self.generic_visit(node)


def find_imports(
    module: Module, modules: Mapping[str, Module], *, for_types: bool = True
) -> set[str]:
    """Finds the full names of everything that a module imports, at its top or later.

    `from a import b` is an import of a.b where that is a module of this project.

    Args:
        module: the module.
        modules: all modules of the project.
        for_types: count what is only named, too: imported for type hints, or a string with the name
            of a module, which `importlib` imports or `python -m` runs when it is asked to.
    """
    names = set()
    tree: ast.AST = module.tree
    if not for_types and "TYPE_CHECKING" in (text := module.path.read_text()):
        tree = _WithoutTypeChecking().visit(ast.parse(text))
    # The strings of this test name rooms.
    has_names = for_types and module.path != pathlib.Path(__file__).resolve()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            inside = members & modules.keys()
            names |= inside
            if inside != members:
                names.add(node.module)
        elif has_names and isinstance(node, ast.Constant) and node.value in modules:
            names.add(node.value)
    return names - {"__future__", module.name, *PACKAGES}


def reachable(start: str, edges: Mapping[str, set[str]]) -> dict[str, tuple[str, ...]]:
    """A path to everything that can be reached, the start included."""
    paths = {start: (start,)}
    pending = [start]
    while pending:
        last = pending.pop()
        for following in sorted(edges.get(last, ())):
            if following not in paths:
                paths[following] = (*paths[last], following)
                pending.append(following)
    return paths


def is_in(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def layer(name: str) -> int | None:
    return next((i for i, names in enumerate(LAYERS) if is_in(name, names)), None)


def upward_paths(edges: Mapping[str, set[str]]) -> list[str]:
    """Paths from a module to one of a later layer, as text."""
    wrong = []
    for name in edges:
        mine = layer(name)
        if mine is None:
            continue
        for needed, path in reachable(name, edges).items():
            if (layer(needed) or 0) > mine:
                wrong.append(" -> ".join(path))
    return wrong


class ArchitectureTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.modules = read_modules()
        cls.targets = read_targets()
        cls.mentions = {
            name: find_imports(module, cls.modules) for name, module in cls.modules.items()
        }
        cls.imports = {
            name: find_imports(module, cls.modules, for_types=False)
            for name, module in cls.modules.items()
        }

    def own_imports(self, name: str) -> set[str]:
        """The modules of this project that a module imports when it runs."""
        return self.imports[name] & self.modules.keys()

    def own_mentions(self, name: str) -> set[str]:
        """The same, and those that its type hints and strings name."""
        return self.mentions[name] & self.modules.keys()

    def sources_of_deps(self, target: Target) -> set[str]:
        """The sources of the targets that a target depends on directly."""
        deps = (self.targets[dep] for dep in target.deps if dep in self.targets)
        return {source for dep in deps for source in dep.sources}

    def test_sources_were_found(self):
        self.assertContainsSubset(
            ["tf_placer.inputs.step", "tests.architecture_test"], self.modules
        )
        self.assertIn("//tests:architecture_test", self.targets)

    def test_every_module_is_in_a_room(self):
        for name, module in self.modules.items():
            if module.has_code and name != FACE:
                self.assertIsNotNone(layer(name), module.path)

    def test_every_room_is_there(self):
        for room in (name for names in LAYERS for name in names):
            inside = [name for name in self.modules if is_in(name, (room,))]
            self.assertNotEmpty(inside, room)

    def test_names_of_modules_in_strings_are_those_of_modules(self):
        inner = [name for name in self.modules if "." in name]
        for module in self.modules.values():
            for node in ast.walk(module.tree):
                text = node.value if isinstance(node, ast.Constant) else None
                if not isinstance(text, str) or not re.fullmatch(_DOTTED_NAME, text):
                    continue
                is_folder = (ROOT / text.replace(".", "/")).is_dir()
                found = is_folder or any(is_in(text, (name,)) for name in inner)
                self.assertTrue(found, f"{module.path}:{node.lineno}: {text!r}")

    def test_imports_go_one_way(self):
        edges = {name: self.own_mentions(name) for name in self.modules}
        self.assertEqual(upward_paths(edges), [])

    def test_dependencies_of_targets_go_one_way(self):
        layers = {
            label: [found for found in map(layer, target.sources) if found is not None]
            for label, target in self.targets.items()
        }
        edges = {label: set(target.deps) & layers.keys() for label, target in self.targets.items()}
        for label, own in layers.items():
            for needed, path in reachable(label, edges).items():
                if needed != label and own and layers[needed]:
                    self.assertLessEqual(max(layers[needed]), min(own), " -> ".join(path))

    def test_modules_do_not_import_each_other_in_a_circle(self):
        edges = {name: self.own_imports(name) for name in self.modules}
        for name, imports in edges.items():
            for imported in sorted(imports):
                path = reachable(imported, edges).get(name)
                self.assertIsNone(path, f"{name} -> {' -> '.join(path or ())}")

    def test_imports_are_absolute(self):
        for module in self.modules.values():
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ImportFrom):
                    self.assertEqual(node.level, 0, f"{module.path}:{node.lineno}")

    def test_graph_passes_need_graphs_and_arrays_only(self):
        allowed = GRAPH_PASSES_MAY_IMPORT | set(sys.stdlib_module_names)
        for name, imports in self.mentions.items():
            if is_in(name, ("graph_passes",)):
                tops = {imported.partition(".")[0] for imported in imports}
                self.assertContainsSubset(tops, allowed, name)
                keras = [i for i in imports if is_in(i, ("keras", "tensorflow.keras"))]
                self.assertEmpty(keras, name)

    def test_placers_see_groups_and_measurements_only(self):
        for name in self.modules:
            if is_in(name, ("tf_placer.placers",)) and not is_in(name, SIMULATING):
                others = {i for i in self.own_mentions(name) if not is_in(i, SEEN_BY_PLACERS)}
                self.assertEmpty(others, name)

    def test_interfaces_and_problems_need_no_tensorflow(self):
        edges = {name: self.own_imports(name) for name in self.modules}
        for name in self.modules:
            if is_in(name, WITHOUT_TENSORFLOW):
                for needed, path in reachable(name, edges).items():
                    heavy = {i for i in self.imports[needed] if is_in(i, ("keras", "tensorflow"))}
                    self.assertEmpty(heavy, " -> ".join(path))

    def test_ray_is_imported_by_one_module_and_not_with_it(self):
        """Ray is an extra: importing that module must work without it."""
        importing = {
            name
            for name, imports in self.imports.items()
            if any(is_in(i, ("ray",)) for i in imports) and not is_in(name, ("tests",))
        }
        self.assertEqual(importing, {RAY})
        for node in self.modules[RAY].tree.body:
            if isinstance(node, ast.Import):
                self.assertNotIn("ray", [alias.name for alias in node.names])

    def test_every_module_is_a_source_of_one_target(self):
        for name, module in self.modules.items():
            if module.path.name == "__init__.py" and not module.has_code:
                continue
            rule = "py_test" if name.endswith("_test") else "py_library"
            owners = [
                target.label
                for target in self.targets.values()
                if target.rule == rule and name in target.sources
            ]
            self.assertLen(owners, 1, f"{rule} targets of {module.path}")

    def test_every_test_runs_its_tests(self):
        for name, module in self.modules.items():
            if name.endswith("_test"):
                guards = [
                    node
                    for node in module.tree.body
                    if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)
                ]
                self.assertLen(guards, 1, module.path)

    def test_sources_and_dependencies_of_targets_exist(self):
        for target in self.targets.values():
            self.assertContainsSubset(target.sources, self.modules, target.label)
            self.assertContainsSubset(target.deps, self.targets, target.label)

    def test_targets_name_what_they_import(self):
        for target in self.targets.values():
            named = self.sources_of_deps(target) | set(target.sources)
            for source in target.sources:
                if source not in self.modules:
                    continue
                imported = {i for i in self.own_mentions(source) if self.modules[i].has_code}
                self.assertContainsSubset(imported, named, f"{target.label} imports in {source}")

    def test_targets_say_when_they_need_tensorflow(self):
        for target in self.targets.values():
            imports = set().union(*(self.imports.get(source, set()) for source in target.sources))
            if any(is_in(i, ("keras", "tensorflow")) for i in imports):
                self.assertIn(TENSORFLOW, target.deps, target.label)

    def test_no_package_of_tests_hides_a_package(self):
        for package in PACKAGES:
            self.assertFalse((ROOT / "tests" / package / "__init__.py").exists(), package)


if __name__ == "__main__":
    absltest.main()
