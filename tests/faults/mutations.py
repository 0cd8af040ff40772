"""Files that are wrong: mutations of valid ones, drawn from a seed."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

__all__ = ["mutate_bytes", "mutate_json", "mutate_lines"]

_DEPTH = 100_000
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 2**31, 2**63, 10**40, 1e308),
    *("", "x", "0", "µ", "\ud800", "a\nb", "\0", "x" * 100_000, "/gpu:zero", "CPU:-1"),
    *(float("inf"), float("-inf"), float("nan")),
    *([], {}, [[]], [None], {"": 0}, {"x": []}),
)


def mutate_json(data: bytes, draw: random.Random) -> bytes:
    """Changes JSON as values: wrong types and numbers, missing, unknown and repeated entries."""
    kind = draw.random()
    if kind < 0.25:
        return mutate_bytes(data, draw)
    value = json.loads(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        value = _mutate_value(value, draw)
    changed = json.dumps(value)
    if kind < 0.28:
        place = draw.choice([i for i, char in enumerate(changed) if char in "0123456789"] or [0])
        deep = draw.choice(("[" * _DEPTH + "]" * _DEPTH, '{"a":' * _DEPTH, "[" * _DEPTH))
        changed = changed[:place] + deep + changed[place + 1 :]
    elif kind < 0.33 and isinstance(value, dict) and value:
        key, other = draw.choice(list(value)), _value(draw)
        changed = "{" + f"{json.dumps(key)}: {json.dumps(other)}, " + changed[1:]
    return changed.encode()


def mutate_lines(data: bytes, draw: random.Random) -> bytes:
    """Changes a JSON Lines file: one of its lines, or their order."""
    lines = data.splitlines()
    kind = draw.random()
    if kind < 0.2:
        return mutate_bytes(data, draw)
    number = draw.randrange(len(lines))
    lines[number] = draw.choice(lines) if kind < 0.4 else mutate_json(lines[number], draw)
    return b"\n".join(lines) + b"\n"


def mutate_bytes(data: bytes, draw: random.Random) -> bytes:
    """Changes bytes: cuts them, flips, inserts, repeats, or writes them in another encoding."""
    first, second = sorted((draw.randrange(len(data)), draw.randrange(len(data))))
    match draw.randrange(6):
        case 0:
            changed = bytearray(data)
            for _ in range(draw.choice((1, 1, 4, 64))):
                changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            return bytes(changed)
        case 1:
            return data[:first] + draw.randbytes(draw.choice((1, 8, 1000))) + data[first:]
        case 2:
            return data[:second] + data[first:second] + data[second:]
        case 3:
            codes = ("utf-8-sig", "utf-16", "utf-32")
            return data.decode("latin-1").encode(draw.choice(codes)) + b"\0" * draw.choice((0, 64))
        case _:
            return data[:first]


def _value(draw: random.Random) -> Any:
    # A copy: what is inside may be changed next.
    return copy.deepcopy(draw.choice(_VALUES))


def _mutate_value(value: Any, draw: random.Random) -> Any:
    """Changes a value in one place; the place is drawn level by level."""
    inside = value
    while True:
        if not isinstance(inside, (dict, list)) or not inside or draw.random() < 0.03:
            return _value(draw)
        key = draw.choice(list(inside)) if isinstance(inside, dict) else draw.randrange(len(inside))
        if not isinstance(inside[key], (dict, list)) or not inside[key] or draw.random() < 0.3:
            break
        inside = inside[key]
    match draw.randrange(6):
        case 0:
            del inside[key]
        case 1 if isinstance(inside, dict):
            inside[draw.choice(("unknown", "", "\ud800"))] = inside[key]
        case 1:
            inside.insert(key, inside[key])
        case 2 if isinstance(inside[key], (int, float)) and not isinstance(inside[key], bool):
            inside[key] = draw.choice((-inside[key], inside[key] + 1, inside[key] * 1e30))
        case _:
            inside[key] = _value(draw)
    return value
