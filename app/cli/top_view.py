"""What `top` shows of what it has seen: four tables that share the lines of a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from app.cli.jobs import COLUMNS as JOB_COLUMNS
from app.cli.printable import printable, span
from app.cli.queues import paused
from app.cli.tables import Column, table
from app.cli.top_look import QueueSeen, Snapshot, TenantSeen, WorkerSeen, began_at
from app.client import State

_HEAD_LINES: Final = 2
_LINES_BETWEEN: Final = 2
_BAR: Final = 10


def _counting(title: str, *states: State) -> Column[QueueSeen]:
    def count(seen: QueueSeen) -> str:
        return str(sum(seen.states.get(state, 0) for state in states))

    return Column(title, count, is_right=True, is_whole=True)


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{part:.0%}"


def _bar(part: float | None) -> str:
    return "" if part is None else "█" * round(part * _BAR)


def _longest(seen: WorkerSeen) -> str:
    return span(datetime.now(UTC).timestamp() - began_at(seen.jobs[0]))


QUEUES: Final = (
    Column[QueueSeen]("QUEUE", lambda seen: seen.queue.name),
    _counting("PENDING", State.PENDING),
    _counting("QUEUED", State.QUEUED),
    _counting("RUNNING", State.SCHEDULED, State.RUNNING),
    _counting("COMPLETED", State.COMPLETED),
    _counting("FAILED", State.FAILED),
    Column[QueueSeen](
        "PAUSED",
        lambda seen: paused(seen.queue),
        is_whole=True,
        style=lambda seen: "yellow" if seen.queue.paused else "",
    ),
)
TENANTS: Final = (
    Column[TenantSeen]("TENANT", lambda seen: seen.tenant.name),
    Column[TenantSeen]("WEIGHT", lambda seen: str(seen.tenant.weight), is_right=True, is_whole=True),
    Column[TenantSeen]("QUEUED", lambda seen: str(seen.tenant.queued), is_right=True, is_whole=True),
    Column[TenantSeen]("RUNNING", lambda seen: str(seen.tenant.running), is_right=True, is_whole=True),
    Column[TenantSeen]("SHARE", lambda seen: _percent(seen.due), is_right=True, is_whole=True),
    Column[TenantSeen]("NOW", lambda seen: _percent(seen.now), is_right=True, is_whole=True),
    Column[TenantSeen]("", lambda seen: _bar(seen.now), is_whole=True, is_extra=True, style=lambda _: "cyan"),
    Column[TenantSeen](
        "PAUSED",
        lambda seen: paused(seen.tenant),
        is_whole=True,
        style=lambda seen: "yellow" if seen.tenant.paused else "",
    ),
)
WORKERS: Final = (
    Column[WorkerSeen]("WORKER", lambda seen: seen.name),
    Column[WorkerSeen]("JOBS", lambda seen: str(len(seen.jobs)), is_right=True, is_whole=True),
    Column[WorkerSeen]("LONGEST", _longest, is_right=True, is_whole=True),
    Column[WorkerSeen]("AT", lambda seen: f"{seen.jobs[0].tenant}: {seen.jobs[0].test_suite}"),
)


@dataclass(frozen=True, slots=True)
class Section:
    """One of the tables."""

    columns: Sequence[Column[Any]]
    rows: Sequence[Any]
    are_all: bool = True

    def cut(self, most: int) -> Section:
        """The section with so many rows at most; how many are not shown is in its first title, if that is known."""
        hidden = len(self.rows) - most
        first, *others = self.columns
        if hidden > 0 and self.are_all:
            first = replace(first, title=f"{first.title} (+{hidden})")
        return replace(self, columns=[first, *others], rows=self.rows[:most])


def sections(seen: Snapshot) -> list[Section]:
    """The tables, top to bottom."""
    return [
        Section(QUEUES, seen.queues),
        Section(TENANTS, seen.tenants),
        Section(WORKERS, seen.workers),
        Section(JOB_COLUMNS, seen.newest, are_all=False),
    ]


def counts_line(seen: Snapshot) -> str:
    """How many jobs there are."""
    counts = Counter(seen.stats.state_counts)
    counts[State.RUNNING] += counts.pop(State.SCHEDULED, 0)  # both are in workers' hands
    return "   ".join(f"{state} {counts[state]}" for state in State if state is not State.SCHEDULED)


def view(seen: Snapshot | None, url: str, trouble: str | None, width: int, height: int) -> RenderableType:
    """A screen of `width` by `height`. `trouble` is why what is shown is not of this moment."""
    return Group(*_lines(seen, url, trouble, width, height))


def _lines(seen: Snapshot | None, url: str, trouble: str | None, width: int, height: int) -> Iterator[RenderableType]:
    yield _line(f"fairlane at {url}   {datetime.now().astimezone():%H:%M:%S}   q quits", "bold", width)
    if trouble is not None:
        yield _line(f"trying again: {trouble}", "red", width)
    else:
        yield _line(counts_line(seen) if seen else "looking", "", width)
    if seen is None:
        return
    shown = sections(seen)
    room = height - _HEAD_LINES - _LINES_BETWEEN * len(shown)
    for section, rows in zip(shown, share_lines(room, [len(section.rows) for section in shown]), strict=True):
        yield Text("")
        cut = section.cut(rows)
        yield table(cut.columns, cut.rows, width)


def share_lines(room: int, wanted: Sequence[int]) -> list[int]:
    """How many of `room` lines each gets: what it wants, or an equal part of what those that want less leave."""
    given = [0] * len(wanted)
    by_want = sorted(range(len(wanted)), key=lambda place: wanted[place])
    for rank, place in enumerate(by_want):
        given[place] = min(wanted[place], max(0, room) // (len(wanted) - rank))
        room -= given[place]
    return given


def _line(text: str, style: str, width: int) -> Text:
    line = Text(printable(text), style=style, no_wrap=True)
    line.truncate(width, overflow="ellipsis")
    return line
