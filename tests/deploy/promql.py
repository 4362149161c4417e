"""What a PromQL expression asks for: enough of the language to find a metric or a label that does not exist. Whether
the expression is well formed is promtool's to say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from app.scheduling.job import Outcome, State
from tests.metrics.scenes import Family

SCRAPED: Final = frozenset({"job", "instance"})
"""Labels that Prometheus adds to whatever it scrapes."""

_SELECTOR: Final = re.compile(r"\b((?:fairlane_|up\b)\w*)\s*(?:\{([^}]*)\})?")
_MATCHER: Final = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"\s*(?:,|$)')
_GROUPED: Final = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_STATUSES: Final = frozenset({"200", "201", "400", "404", "409", "429", "500", "503"})
_KNOWN: Final[Mapping[str, frozenset[str]]] = {
    "state": frozenset(State),
    "outcome": frozenset(Outcome),
    "from": frozenset({"new", *State}),
    "to": frozenset({"gone", *State}),
    "reason": frozenset({"rate", "max_queued"}),
    "loop": frozenset({"ticker", "writer", "moves"}),
    "status": _STATUSES,
}
"""What labels can be whose values are ours and not a client's."""


def faults(expression: str, families: Mapping[str, Family]) -> Iterator[str]:
    """What in the expression no service shows."""
    series = {name: family for family in families.values() for name in family.series}
    allowed = set(SCRAPED)
    for name, matchers in _SELECTOR.findall(expression):
        if name == "up":
            continue
        if name not in series:
            yield f"no series {name}"
            continue
        labels = set(series[name].labels | SCRAPED | ({"le"} if name.endswith("_bucket") else set()))
        allowed |= labels
        yield from _unmatched(name, matchers, labels)
    for grouped in _GROUPED.findall(expression):
        for label in filter(None, re.split(r"\s*,\s*", grouped.strip())):
            if label not in allowed:
                yield f"no label {label} to group by"


def _unmatched(name: str, matchers: str, labels: set[str]) -> Iterator[str]:
    found = _MATCHER.findall(matchers)
    if _MATCHER.sub("", matchers).strip():
        yield f"unreadable matchers {matchers}"
    for label, operator, value in found:
        if label not in labels:
            yield f"{name} has no label {label}"
        elif label in _KNOWN and "$" not in value:
            wanted = value.split("|") if "~" in operator else [re.escape(value)]
            for each in wanted:
                if not any(re.fullmatch(each, known) for known in _KNOWN[label]):
                    yield f"{label} of {name} is never {each}"
