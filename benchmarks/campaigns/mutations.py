"""Files that are wrong: mutations of valid ones, drawn from a seed.

JSON is changed as a value (wrong types, numbers out of range, missing, unknown, repeated and deeply
nested entries) or as text; what is not text byte by byte.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

__all__ = ["mutated_bytes", "mutated_json", "mutated_lines"]

_DEPTH = 100_000
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 2**31, 2**63, 10**40, 1e308),
    *("", "x", "0", "µ", "\ud800", "a\nb", "\0", "x" * 100_000, "/gpu:zero", "CPU:-1"),
    *(float("inf"), float("-inf"), float("nan")),
    *([], {}, [[]], [None], {"": 0}, {"x": []}),
)


def mutated_json(text: str, draw: random.Random) -> bytes:
    """Changes a JSON file in one place, or a few."""
    if draw.random() < 0.25:
        return mutated_bytes(text.encode(), draw)
    value = json.loads(text)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        value = _mutated_value(value, draw)
    changed = json.dumps(value)
    if draw.random() < 0.05:
        changed = _with_repeated_entry(changed, draw)
    if draw.random() < 0.03:
        place = draw.choice([i for i, char in enumerate(changed) if char in "0123456789"] or [0])
        deep = draw.choice(("[" * _DEPTH + "]" * _DEPTH, '{"a":' * _DEPTH, "[" * _DEPTH))
        changed = changed[:place] + deep + changed[place + 1 :]
    return changed.encode()


def mutated_lines(text: str, draw: random.Random) -> bytes:
    """Changes a JSON Lines file: one of its lines, or their order."""
    lines = text.splitlines()
    kind = draw.random()
    if kind < 0.6:
        number = draw.randrange(len(lines))
        changed = [line.encode() for line in lines]
        changed[number] = mutated_json(lines[number], draw)
        return b"\n".join(changed) + b"\n"
    if kind < 0.8:
        first, second = draw.randrange(len(lines)), draw.randrange(len(lines))
        lines[first] = lines[second]
        return "\n".join(lines).encode() + b"\n"
    return mutated_bytes(text.encode(), draw)


def mutated_bytes(data: bytes, draw: random.Random) -> bytes:
    """Changes bytes: cuts them, flips, inserts, repeats, or writes them in another encoding."""
    return draw.choice(_BYTES)(data, draw)


def _flipped(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 4, 64))):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _inserted(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data) + 1)
    return data[:place] + draw.randbytes(draw.choice((1, 8, 1000))) + data[place:]


def _repeated(data: bytes, draw: random.Random) -> bytes:
    first, second = sorted((draw.randrange(len(data)), draw.randrange(len(data))))
    return data[:second] + data[first:second] + data[second:]


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def _recoded(data: bytes, draw: random.Random) -> bytes:
    text = data.decode("latin-1")
    return draw.choice(
        (b"\xef\xbb\xbf" + data, text.encode("utf-16"), text.encode("utf-32"), data + b"\0" * 64)
    )


_BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(_flipped, _inserted, _repeated, _cut, _cut, _recoded),
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Lists the paths of all values in a value; of long lists those of some."""
    found = [path]
    if isinstance(value, dict):
        for key, each in value.items():
            found += _places(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value[:5]):
            found += _places(each, (*path, index))
    return found


def _mutated_value(value: Any, draw: random.Random) -> Any:
    path = draw.choice(_places(value))
    if not path:
        return draw.choice(_VALUES)
    value = copy.deepcopy(value)
    inside = value
    for key in path[:-1]:
        inside = inside[key]
    key = path[-1]
    match draw.randrange(6):
        case 0 if isinstance(inside, dict):
            del inside[key]
        case 0:
            inside.pop(key)
        case 1 if isinstance(inside, dict):
            inside[str(draw.choice(("unknown", "", "\ud800")))] = inside[key]
        case 1:
            inside.insert(key, copy.deepcopy(inside[key]))
        case 2 if isinstance(inside[key], (int, float)) and not isinstance(inside[key], bool):
            inside[key] = draw.choice((-inside[key], inside[key] + 1, inside[key] * 1e30))
        case _:
            inside[key] = draw.choice(_VALUES)
    return value


def _with_repeated_entry(text: str, draw: random.Random) -> str:
    """Repeats an entry of an object with another value."""
    value = json.loads(text)
    if not isinstance(value, dict) or not value:
        return text
    key = draw.choice(list(value))
    return "{" + f"{json.dumps(key)}: {json.dumps(draw.choice(_VALUES))}, " + text[1:]
