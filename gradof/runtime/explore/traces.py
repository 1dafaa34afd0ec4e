"""Why a function was traced, each time: the place that changed, with the names of its parameters.

>>> changes_of("args[0] is int64[7], was int64[6]; args[1] is 'sum', was 'mean'", ["tokens", "how"])
[{'place': 'tokens', 'was': 'int64[6]', 'now': 'int64[7]'},
 {'place': 'how', 'was': "'mean'", 'now': "'sum'"}]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradof.runtime.cache import Cache

_ARGUMENT = re.compile(r"\bargs\[(\d+)\]")
_FORMS = (re.compile(r"(?P<place>.+?) is (?P<now>.+), was (?P<was>.+)", re.DOTALL),
          re.compile(r"(?P<place>.+?) was (?P<was>.+) and is (?P<now>.+)", re.DOTALL),
          re.compile(r"(?P<place>.+?) had (?P<was>.+) and has (?P<now>.+)", re.DOTALL))  # fmt: skip
_TYPE = re.compile(r"\w+\[[\d,]*\](?:@\S+)?")
_NAME = re.compile(r"[A-Za-z_]\w*")

# What to do, by what it was that changed.
SIZES = (
    "Each shape and dtype is a trace of its own: pad to a few sizes, and keep to one dtype. The "
    "traces are kept, so sizes that come back cost nothing."
)
ARGUMENT = (
    "A Python value that decides what is computed is a constant of its trace: pass a tensor, or a "
    "float where any number will do, or keep to a few values."
)
STATE = (
    "The function reads it, and each value of it is a trace: take what matters of it outside, and "
    "pass that as an argument, or make it a tensor or a number."
)
PATH = "Each way through the branches is a trace. Where both sides are cheap, choose with where()."
OTHER = "Keep to few structures of arguments and settings of the library: each is a trace."


def changes_of(reason: str, names: Sequence[str]) -> list[dict[str, str]]:
    """What changed, place by place; [] where a reason is of another form."""
    found = []
    for part in reason.split("; "):
        match = next(filter(None, (form.fullmatch(part) for form in _FORMS)), None)
        if match is None:
            return []
        place = named(match["place"], names)
        found.append({"place": place, "was": match["was"], "now": match["now"]})
    return found


def history(cache: Cache, names: Sequence[str]) -> list[dict[str, Any]]:
    """Each trace: its reason, what changed, and what it took."""
    return [
        {"reason": named(reason, names), "seconds": seconds, "changes": changes_of(reason, names)}
        for reason, seconds in list(cache.traces)
    ]


@dataclass(frozen=True)
class Cause:
    """The place that most traces were made for, and what to do about it."""

    place: str
    advice: str
    word: str | None  # the name by which the source reads it


def main_cause(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> Cause:
    """Of the traces after the first, at least one."""
    count: dict[str, int] = {}
    last: dict[str, dict[str, str]] = {}
    for row in rows:
        for change in row["changes"] or [{"place": row["reason"], "was": "", "now": ""}]:
            place = change["place"].removesuffix(" varies")
            count[place] = count.get(place, 0) + 1
            last[place] = change
    place = max(count, key=lambda each: count[each])
    change = last[place]
    advice = STATE
    if _TYPE.fullmatch(change["was"]) and _TYPE.fullmatch(change["now"]):
        advice = SIZES
    elif re.split(r"[.\[]", place)[0] in names:
        advice = ARGUMENT
    elif "another path" in place:
        advice = PATH
    elif not change["was"]:
        advice = OTHER
    words = _NAME.findall(place) if change["was"] else []
    return Cause(place, advice, words[-1] if words else None)


def named(text: str, names: Sequence[str]) -> str:
    """A text with the names of parameters in place of their positions."""

    def name(match: re.Match[str]) -> str:
        k = int(match[1])
        return names[k] if k < len(names) else match[0]

    return _ARGUMENT.sub(name, text)
