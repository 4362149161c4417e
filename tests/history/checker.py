"""The one checker: a history against the tables, and all that is promised about the two. It answers with sentences, and
with none if all is well."""

from __future__ import annotations

from collections.abc import Iterator

from tests.history import acknowledged, leases, lives, order
from tests.history.record import History
from tests.history.tables import Tables
from tests.history.terms import Terms


def violations(history: History, tables: Tables, terms: Terms) -> list[str]:
    """Each promise that was not kept, in words."""
    return list(_violations(history, tables, terms))


def _violations(history: History, tables: Tables, terms: Terms) -> Iterator[str]:
    yield from acknowledged.lost(history, tables)
    yield from acknowledged.unasked(history, tables)
    yield from acknowledged.doubled(history, tables)
    yield from acknowledged.reports(history, tables)
    yield from acknowledged.unasked_ends(history, tables)
    yield from acknowledged.refusals(history, tables)
    yield from acknowledged.settings(history, tables)
    yield from leases.overlapping(history, tables, terms)
    yield from leases.vanished(history, tables)
    yield from leases.lapsed_early(history, tables, terms)
    yield from lives.illegal(history, tables)
    yield from lives.given_up(history, tables)
    yield from lives.changed_after_the_end(history, tables)
    yield from lives.early(history, tables, terms)
    yield from lives.late(history, tables, terms)
    yield from order.out_of_order(history, tables, terms)
    yield from order.beyond_limits(history, tables)
    yield from order.unfair(history, tables, terms)
