"""`fairlane top`: it fits its screen, shows what is so, and outlives the service."""

from __future__ import annotations

import io
import re
import signal
import termios
from typing import Any

import pytest
from rich.console import Console

from app.cli.top_look import Snapshot, queues_seen, tenants_seen, workers_seen
from app.cli.top_view import share_lines, view
from app.client import Queue, QueueCounts, State, Stats, Tenant
from tests.cli.jobs import LONG_AGO, a_job
from tests.cli.running import Fairlane, until
from tests.cli.test_looking import ESCAPED, HOSTILE, claim
from tests.databases import Database
from tests.served import serving


def a_tenant(**given: Any) -> Tenant:
    usual: dict[str, Any] = {
        "name": "acme",
        "weight": 1,
        "rate_per_sec": None,
        "burst": None,
        "max_running": None,
        "max_queued": None,
        "paused": False,
        "queued": 0,
        "running": 0,
        "created_at": LONG_AGO,
        "updated_at": LONG_AGO,
    }
    return Tenant(**usual | given)


def a_snapshot(many: int) -> Snapshot:
    """Much of everything, under names that mean harm."""
    counts: dict[str, Any] = {
        "queue_depth": 7,
        "total_jobs": 9,
        "tenant_counts": {},
        "state_counts": dict.fromkeys(State, 123_456),
    }
    queues = [Queue(name=f"{HOSTILE}{n}", paused=n % 2 == 0, queued=n, running=1) for n in range(many)]
    stats = Stats(**counts, queues={queue.name: QueueCounts(**counts) for queue in queues})
    jobs = [a_job(id=f"{n:032x}", tenant=HOSTILE, test_suite=HOSTILE * 9, worker=f"{HOSTILE}{n}") for n in range(many)]
    return Snapshot(
        stats=stats,
        queues=queues_seen(queues, stats),
        tenants=tenants_seen(a_tenant(name=f"{HOSTILE}{n}", queued=n, running=n) for n in range(many)),
        workers=workers_seen(jobs),
        newest=list(jobs),
    )


def shown(snapshot: Snapshot | None, trouble: str | None = None, width: int = 80, height: int = 24) -> list[str]:
    """The lines of a screen."""
    screen = io.StringIO()
    Console(file=screen, width=width, height=height).print(view(snapshot, "http://x", trouble, width, height))
    return screen.getvalue().splitlines()


@pytest.mark.parametrize("many", [0, 1, 3, 500])
@pytest.mark.parametrize("trouble", [None, "x" * 500])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (60, 14)])
def test_it_fits_its_screen(many: int, trouble: str | None, width: int, height: int) -> None:
    lines = shown(a_snapshot(many), trouble, width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    if many == 500:
        assert len(lines) == height


def test_names_are_escaped() -> None:
    lines = "\n".join(shown(a_snapshot(3), width=400))
    assert lines.count(ESCAPED) > 9
    assert "\u202e" not in lines


def test_what_is_hidden_is_counted() -> None:
    lines = shown(a_snapshot(20))
    assert any(line.startswith("QUEUE (+17)") for line in lines)
    assert any(line.startswith("WORKER (+16)") for line in lines)


def test_shares_are_promised_among_those_that_have_jobs_and_are_not_paused() -> None:
    seen = tenants_seen(
        [
            a_tenant(name="a", weight=3, queued=5, running=1),
            a_tenant(name="b", weight=1, queued=1, running=2),
            a_tenant(name="idle", weight=96),
            a_tenant(name="paused", weight=4, queued=9, paused=True, running=1),
        ]
    )
    parts = {each.tenant.name: (each.due, each.now) for each in seen}
    assert parts == {"a": (0.75, 0.25), "b": (0.25, 0.5), "idle": (None, 0.0), "paused": (None, 0.25)}
    assert tenants_seen([a_tenant(queued=1)])[0].now is None


def test_a_worker_is_shown_with_its_jobs_oldest_first() -> None:
    later = LONG_AGO.replace(year=2027)
    seen = workers_seen([a_job(id="b", started_at=later), a_job(id="a"), a_job(worker="v"), a_job(worker="u")])
    assert [(each.name, [job.id[:1] for job in each.jobs]) for each in seen] == [
        ("w", ["a", "b"]),
        ("u", ["0"]),
        ("v", ["0"]),
    ]


@pytest.mark.parametrize(
    ("room", "wanted", "given"),
    [
        (14, [3, 3, 3, 50], [3, 3, 3, 5]),
        (14, [50, 50, 50, 50], [3, 3, 4, 4]),
        (14, [1, 50, 0, 50], [1, 6, 0, 7]),
        (100, [1, 2, 3, 4], [1, 2, 3, 4]),
        (0, [1, 2], [0, 0]),
        (-5, [1, 2], [0, 0]),
    ],
)
def test_the_lines_are_shared_fairly(room: int, wanted: list[int], given: list[int]) -> None:
    assert share_lines(room, wanted) == given


async def test_it_outlives_a_restart_and_leaves_the_terminal_as_it_was(sqlite_database: Database, name: str) -> None:
    async with serving(sqlite_database.url) as served:
        fairlane = Fairlane(served.url)
        fairlane.submit(name, "a")
        async with fairlane.terminal("top", "--interval", "0.1") as terminal:
            before = termios.tcgetattr(terminal.theirs)
            await terminal.shows(name)
            assert termios.tcgetattr(terminal.theirs) != before
            await served.kill()
            await terminal.shows("trying again: ")
            async with serving(sqlite_database.url, port=fairlane.url.rpartition(":")[2]):
                fairlane.submit(name + "-later", "b")
                await terminal.shows(name + "-later")
            terminal.press("x q")
            assert await terminal.exited() == 0
            assert termios.tcgetattr(terminal.theirs) == before
    assert terminal.text.endswith("\x1b[?1049l")
    assert "Traceback" not in terminal.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_too(away: Fairlane, number: signal.Signals) -> None:
    async with away.terminal("top") as terminal:
        await terminal.shows("trying again")
        terminal.process.send_signal(number)
        assert await terminal.exited() == 0
    assert terminal.text.endswith("\x1b[?1049l")


def test_in_no_terminal_everything_is_printed_once(fairlane: Fairlane, name: str) -> None:
    fairlane.submit(name, "tests/login", "-q", name)
    claim(fairlane, name, worker=name + "-worker")
    told = fairlane("top").output
    assert re.search(r"^pending \d+   queued \d+   running [1-9]\d*   completed", told)
    assert re.search(rf"(?m)^{name}  +0       0        1          0       0  -$", told)
    assert re.search(rf"(?m)^{name}-worker  +1 +\d+s  {name}: tests/login$", told)


async def test_it_draws_anew_when_the_terminal_changes(away: Fairlane) -> None:
    async with away.terminal("top", "--interval", "1000") as terminal:
        await terminal.shows("trying again")
        drawn = terminal.text.count("fairlane at")
        terminal.process.send_signal(signal.SIGWINCH)
        await until(lambda: terminal.text.count("fairlane at") > drawn)
