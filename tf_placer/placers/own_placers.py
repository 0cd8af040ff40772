"""Placers of users: given as objects, named by "module:name", or registered by packages.

A package registers a placer by an entry point of the group `tf_placer.placers`, whose value is its
class, a function that makes it, or a `PlacerEntry`. The name of a placer is all that other
processes are told of it, so they import it.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.metadata
import importlib.util
import inspect
import os
import pathlib
import sys
import sysconfig
import traceback
import types
import typing
from typing import Any

from tf_placer.interpreter import is_notebook
from tf_placer.placers.placer import Placer
from tf_placer.placers.placer_entry import PlacerEntry, import_object

__all__ = [
    "GROUP",
    "check_is_importable",
    "check_no_import_is_running",
    "describe_cause",
    "describe_entry_point",
    "find_own_frames",
    "find_own_placer",
    "list_entry_points",
    "name_placer",
]

#: The group of the entry points that register placers.
GROUP = "tf_placer.placers"
_PROGRAM = "__main__"
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
# The directories of code that is not the user's.
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
_GUARD = "`if __name__ == '__main__':`"
# The objects that this process was given, by the names that `name_placer` made.
_given: dict[str, Any] = {}
# The names of the placers whose modules are being imported.
_imports: list[str] = []


def name_placer(placer: object) -> str:
    """Names a placer that is given as an object.

    Args:
        placer: a subclass of `Placer`, or a function that takes the arguments of its constructor.

    Returns:
        "module:name", by which `find_placer` finds the object. A placer of the program itself has
        the module that other processes import the program as; "__main__" if they cannot.

    Raises:
        ValueError: it is no class or function.
    """
    if not isinstance(placer, type | types.FunctionType):
        value = "None" if placer is None else f"a value of type {type(placer).__name__}"
        raise ValueError(
            f"placer is a name such as 'auto', or a class or a function that makes one, not {value}"
        )
    module = placer.__module__
    if module == _PROGRAM:
        module = _find_program_module() or _PROGRAM
    name = f"{module}:{placer.__qualname__}"
    _given[name] = placer
    return name


def check_is_importable(name: str) -> None:
    """Checks that another process can import a placer that was given as an object.

    Args:
        name: the name of any placer.

    Raises:
        ValueError: it cannot; the message says what to do.
    """
    module, _, qualified_name = name.partition(":")
    if name not in _given:
        return
    if "<" in qualified_name:
        raise ValueError(
            f"the process of the search cannot import placer {name!r}, because it is not at "
            "the top of a module: define it there, with a name of its own"
        )
    if module == _PROGRAM:
        advice = "put it into a module of its own, and import it from there"
        if is_notebook():
            advice += "; in a notebook %%writefile NAME.py makes one of a cell"
        elif getattr(sys.modules[_PROGRAM], "__file__", None) is not None:
            advice += f", or put all that the program does under {_GUARD}"
        raise ValueError(
            f"the process of the search cannot import placer {qualified_name!r} from the "
            f"program itself, because that would run the program again: {advice}"
        )


def check_no_import_is_running() -> None:
    """Checks that no search starts while the module of a placer is imported.

    The process of that search would import the module, too, and start another search.

    Raises:
        ValueError: a placer is being imported.
    """
    if _imports:
        raise ValueError(f"its module searches when it is imported: put the search under {_GUARD}")


def find_own_placer(name: str) -> PlacerEntry | None:
    """Finds a placer that does not belong to this package.

    Args:
        name: as `name_placer` makes it, the name of an entry point, or "module:name".

    Returns:
        Its entry; None if there is no such entry point or module.

    Raises:
        ValueError: it is no placer, its module cannot be imported, or several packages register
            this name.
    """
    if name in _given:
        return _make_entry(name, _given[name], name.partition(":")[0])
    points = {point.value: point for point in list_entry_points() if point.name == name}
    if len(points) > 1:
        owners = " and ".join(map(describe_entry_point, points.values()))
        raise ValueError(
            f"placer {name!r} is registered by {owners}: give one of "
            f"{' and '.join(map(repr, points))} instead of the name"
        )
    for path, point in points.items():
        value = _import(name, path, describe_entry_point(point))
        if value is None:
            raise ValueError(
                f"placer {name!r} of {describe_entry_point(point)} cannot be used: there is "
                f"no module {path.partition(':')[0]!r}"
            )
        return _make_entry(name, value, describe_entry_point(point))
    module, colon, _ = name.partition(":")
    value = _import(name, name, "") if colon else None
    return None if value is None else _make_entry(name, value, module)


def list_entry_points() -> list[importlib.metadata.EntryPoint]:
    """Lists the entry points that register placers, by name; imports none of them."""
    points = importlib.metadata.entry_points(group=GROUP)
    return sorted(points, key=lambda point: (point.name, point.value))


def describe_entry_point(point: importlib.metadata.EntryPoint) -> str:
    """Names the package that registers a placer: "my_placers 1.0"."""
    if point.dist is None:
        return f"a package with {point.value!r}"
    return f"{point.dist.name} {point.dist.version}"


def describe_cause(error: BaseException) -> str:
    """Describes an error in the code of a user, with the file and line that raised it."""
    frames = find_own_frames(error)
    # The message of a syntax error names its own place, at which there is no frame yet.
    has_place = bool(frames) and not isinstance(error, SyntaxError)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if has_place else ""
    return f"{type(error).__name__}: {error}{place}"


def find_own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Finds the frames of an error in the code of the user, without those of libraries.

    An error that libraries alone have raised has their frames: a placer may be installed as one.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", _PACKAGE))
    ]
    return [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames


def _import(name: str, path: str, owner: str) -> Any:
    """Imports the object that a placer is made by; None if there is no such module.

    Raises:
        ValueError: the module has no such object, or raises an error.
    """
    module = path.partition(":")[0]
    # An import takes "./file.py" for a relative module, and has no package that it is relative to.
    if module.startswith("."):
        return None
    _imports.append(name)
    try:
        return import_object(path)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            return None
        of = f" of {owner}" if owner else ""
        raise ValueError(
            f"placer {name!r}{of} cannot be imported: {describe_cause(error)}"
        ) from error
    finally:
        _imports.pop()


def _make_entry(name: str, value: Any, reference: str) -> PlacerEntry:
    """Makes the entry of a placer from its class, the function that makes it, or its entry.

    Raises:
        ValueError: the value is none of these, or the class lacks methods of placers.
    """
    if isinstance(value, PlacerEntry):
        return dataclasses.replace(value, name=name)
    if isinstance(value, type) and not issubclass(value, Placer):
        raise ValueError(
            f"placer {name!r} is no placer: make it a subclass of tf_placer.placers.placer.Placer"
        )
    if not callable(value):
        raise ValueError(
            f"placer {name!r} is neither a class, a function nor a PlacerEntry, but a value "
            f"of type {type(value).__name__}"
        )
    if inspect.isabstract(value):
        missing = " and ".join(sorted(value.__abstractmethods__))
        raise ValueError(f"placer {name!r} has no method {missing}: add it")
    parameters = inspect.signature(value).parameters
    problem = parameters.get("problem")
    needs_problem = problem is not None and problem.default is inspect.Parameter.empty
    summary = (value.__doc__ or "").strip().partition("\n")[0].removesuffix(".")
    return PlacerEntry(
        name,
        summary or "a placer without a description",
        reference,
        value,
        config=_find_config_type(name, value) if "config" in parameters else None,
        needs_problem=needs_problem,
        uses_problem=problem is not None,
    )


def _find_config_type(name: str, value: Any) -> type:
    """Finds the dataclass of a placer's settings, which its argument `config` is annotated with.

    Raises:
        ValueError: it has no such annotation.
    """
    try:
        kind = inspect.signature(value, eval_str=True).parameters["config"].annotation
    except Exception as error:
        raise ValueError(
            f"the annotations of placer {name!r} cannot be read: {describe_cause(error)}"
        ) from error
    members = [member for member in typing.get_args(kind) or (kind,) if member is not type(None)]
    config_type: Any = members[0] if len(members) == 1 else None
    if not isinstance(config_type, type) or not dataclasses.is_dataclass(config_type):
        raise ValueError(
            f"argument config of placer {name!r} has no settings: annotate it with a dataclass"
        )
    return config_type


def _find_program_module() -> str | None:
    """Finds the module that other processes can import this program as.

    Returns:
        Its name; None if they cannot find it, or if the import would run the program: only a
        program that asks for its `__name__` does less when it is imported.
    """
    program = sys.modules[_PROGRAM]
    path, spec = getattr(program, "__file__", None), getattr(program, "__spec__", None)
    if path is None:
        return None
    name = pathlib.Path(path).stem if spec is None else spec.name
    try:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None or not os.path.samefile(found.origin, path):
            return None
        tree = ast.parse(pathlib.Path(path).read_bytes())
    except (ImportError, OSError, SyntaxError, ValueError):
        return None
    tests = [ast.unparse(node.test) for node in tree.body if isinstance(node, ast.If)]
    return name if any("__name__" in test for test in tests) else None
