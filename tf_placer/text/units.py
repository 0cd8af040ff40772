"""Formats of times and sizes for people."""

from __future__ import annotations

__all__ = ["format_age", "format_bytes", "format_duration", "format_step", "size_unit", "step_unit"]


def format_bytes(size: int) -> str:
    """Formats a size with four digits, such as "850 B", "12.34 KiB" or "1.234 GiB".

    Example:
        >>> format_bytes(12 * 2**20)
        '12.00 MiB'
    """
    if size < 1024:
        return f"{size} B"
    for exponent, unit in enumerate(("KiB", "MiB", "GiB"), start=1):
        text = f"{size / 1024**exponent:#.4g}".removesuffix(".")
        if float(text) < 1024:
            return f"{text} {unit}"
    return f"{size / 1024**4:#.4g} TiB" if size < 1000 * 1024**4 else f"{size / 1024**4:.0f} TiB"


def format_duration(secs: float) -> str:
    """Formats a duration, such as "4.2 s", "3 min 05 s" or "2 h 03 min".

    Example:
        >>> format_duration(185)
        '3 min 05 s'
    """
    if round(secs, 1) < 10:
        return f"{secs:.1f} s"
    whole_secs = round(secs)
    if whole_secs < 60:
        return f"{whole_secs} s"
    if whole_secs < 3600:
        return f"{whole_secs // 60} min {whole_secs % 60:02d} s"
    whole_mins = round(secs / 60)
    return f"{whole_mins // 60} h {whole_mins % 60:02d} min"


def format_age(secs: float) -> str:
    """Formats an age, such as "42 s", "3 h" or "12 days".

    Example:
        >>> format_age(3 * 3600 + 100)
        '3 h'
    """
    for unit, each_secs in (("days", 86400), ("h", 3600), ("min", 60)):
        if secs >= 2 * each_secs:
            return f"{int(secs // each_secs)} {unit}"
    return f"{max(0, int(secs))} s"


def format_step(secs: float) -> str:
    """Formats a step time with four digits, such as "850.0 µs", "12.34 ms" or "1.234 s".

    Example:
        >>> format_step(0.01234)
        '12.34 ms'
    """
    if secs == 0:
        return "0 s"
    for unit, per_sec in (("µs", 1e6), ("ms", 1e3)):
        text = f"{secs * per_sec:#.4g}"
        if float(text) < 1000:
            return f"{text} {unit}"
    return f"{secs:#.4g} s" if secs < 1000 else f"{secs:.0f} s"


def step_unit(secs: float) -> tuple[str, float]:
    """Chooses the unit of an axis that ends at a step time, as `format_step` does.

    Returns:
        The unit, and how many of it a second has.

    Example:
        >>> step_unit(0.01234)
        ('ms', 1000.0)
    """
    unit = format_step(secs).rpartition(" ")[2]
    return unit, {"µs": 1e6, "ms": 1e3}.get(unit, 1.0)


def size_unit(size: int) -> tuple[str, float]:
    """Chooses the unit of an axis that ends at a size, as `format_bytes` does.

    Returns:
        The unit, and how many bytes it has.

    Example:
        >>> size_unit(12 * 2**20)
        ('MiB', 1048576.0)
    """
    unit = format_bytes(size).rpartition(" ")[2]
    return unit, 1024.0 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)
