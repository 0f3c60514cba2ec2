"""Numbers and names as a reader should meet them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from os.path import commonprefix
from typing import Any

NOTHING = "–"


def number(value: Any, digits: int = 3) -> str:
    """A value to a few significant figures, with thin grouping; a dash for what was not measured.

    >>> number(0.123456), number(12345), number(-1.2e-7), number(float("nan")), number(True), number("adam")
    ('0.123', '12,345', '−1.2 × 10⁻⁷', '–', 'yes', 'adam')
    """
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return "yes" if value else "no"
    try:
        real = float(value)
    except (TypeError, ValueError):
        return str(value)
    if math.isnan(real):
        return NOTHING
    if math.isinf(real):
        return "∞" if real > 0 else "−∞"
    if real == int(real) and abs(real) < 1e7:
        text = f"{int(real):,}"
    else:
        text = f"{real:,.{digits}g}" if abs(real) < 1000 or abs(real) >= 1e7 else f"{real:,.0f}"
    return _typeset(text)


def _typeset(text: str) -> str:
    """A minus that is one, and powers of ten as they are written by hand."""
    front, _, exponent = text.replace("-", "−").partition("e")
    raised = str.maketrans("0123456789−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
    power = exponent.replace("+", "")
    power = ("−" if power.startswith("−") else "") + power.lstrip("−").lstrip("0")
    return f"{front} × 10{power.translate(raised)}" if exponent else front


def percent(share: Any) -> str:
    """A share as per cent.

    >>> percent(0.945), percent(0.0668), percent(1), percent(float("nan"))
    ('94.5 %', '6.7 %', '100 %', '–')
    """
    return NOTHING if not is_number(share) else f"{100 * float(share):.1f}".removesuffix(".0").replace("-", "−") + " %"


def is_number(value: Any) -> bool:
    """Whether this is one finite real number.

    >>> is_number(0.5), is_number(float("nan")), is_number(None), is_number("a")
    (True, False, False, False)
    """
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def listed(names: Iterable[str], most: int = 8) -> str:
    """Names as one would say them.

    >>> listed(["a", "b", "c"]), listed(["a"]), listed([]), listed("abcdef", most=3)
    ('a, b and c', 'a', '', 'a, b, c and 3 more')
    """
    items = list(names)
    if len(items) > most + 1:
        items = [*items[:most], f"{len(items) - most} more"]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def bytes_in_words(size: float) -> str:
    """
    >>> bytes_in_words(2_516_582), bytes_in_words(900)
    ('2.4 MiB', '900 B')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.1f} {unit}" if unit != "B" else f"{size:.0f} B"
        size /= 1024
    return ""


def seconds_in_words(seconds: float) -> str:
    """
    >>> seconds_in_words(0.42), seconds_in_words(75), seconds_in_words(7300)
    ('0.4 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 2880 else f"{minutes // 1440} days"


def shortened(names: Sequence[str], longest: int = 28) -> list[str]:
    """Names that fit a legend: a long one loses its middle, or their common start when the middle is where they differ.

    >>> shortened(["head", "model.decoder.layers.11.self_attention.q_projection.weight"])
    ['head', 'model.decoder…jection.weight']
    >>> shortened(["modular addition, 70 % of the pairs", "modular addition, 30 % of the pairs"])
    ['…70 % of the pairs', '…30 % of the pairs']
    >>> shortened(["a" * 40 + "b" * 40, "a" * 41 + "b" * 40, "c"])
    ['aaaaaaaaaaaaa…bbbbbbbbbbbbbb', 'aaaaaaaaaaa…bbbbbbbbbbbb (2)', 'c']
    """
    whole = list(map(str, names))
    cut = [_cut(name, longest) for name in whole]
    common = len(commonprefix(whole))
    if len(set(cut)) < len(set(whole)) and common > 3:
        cut = [_cut(f"…{name[common:]}", longest) for name in whole]
    short: list[str] = []
    for name, fitted in zip(whole, cut, strict=True):
        again = 1
        while fitted in short:
            again += 1
            fitted = f"{_cut(name, longest - len(f' ({again})'))} ({again})"
        short.append(fitted)
    return short


def _cut(name: str, longest: int) -> str:
    if len(name) <= longest:
        return name
    front = (longest - 1) // 2
    return f"{name[:front]}…{name[len(name) - (longest - 1 - front) :]}"
