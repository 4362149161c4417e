"""Migration 0006 says in other words what SQLite refuses: a database of before and one of after are told the same, and
answer the same. It rewrites no row, and is undone whole."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from app.errors import SchemaOutdated
from app.scheduling.job import LEGAL_MOVES, Outcome, State
from app.scheduling.shape import SHAPES
from app.store import migrate
from tests.ahead import REPOSITORY, Ahead
from tests.copy.test_way_round import BEGIN, FINISH
from tests.databases import Database, Refused, Sqlite, run_apart
from tests.effort import EFFORT, chance_of
from tests.store.rows import COLUMNS, NULL, WHEN_SET, add_job, add_tenant, cells, insert, update
from tests.store.test_refusals import ATTEMPT

BEFORE: Final = "0005"
AFTER: Final = "0006"


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("other words")
    made = {revision: folder / f"{revision}.db" for revision in (BEFORE, AFTER)}
    for revision, path in made.items():
        run_apart(migrate.upgrade(f"sqlite:///{path}", revision))
    return made


class Pair:
    """Both databases, each in one long transaction without any of our settings."""

    def __init__(self, connections: list[sqlite3.Connection]) -> None:
        self._connections = connections
        self.answers: Counter[str] = Counter()
        for connection in connections:
            connection.execute("BEGIN")

    def tell(self, sql: str, *values: Any) -> None:
        """Says it to both, which must answer the same."""
        before, after = (_answer(connection, sql, values) for connection in self._connections)
        assert before == after, (sql, values)
        self.answers[after] += 1

    def value(self, sql: str) -> Any:
        """The first of the first row, if there is any."""
        found = self._connections[0].execute(sql).fetchone()
        return found and found[0]

    def rows(self, table: str) -> list[Any]:
        """All there are, in both."""
        before, after = (
            connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for connection in self._connections
        )
        assert before == after
        return after


def _answer(connection: sqlite3.Connection, sql: str, values: tuple[Any, ...]) -> str:
    try:
        return f"taken, {connection.execute(sql, values).rowcount}"
    except sqlite3.Error as error:
        return str(error)


@pytest.fixture
def pair(templates: dict[str, Path], tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as stack:
        connections = []
        for revision, template in templates.items():
            path = tmp_path / f"{revision}.db"
            shutil.copyfile(template, path)
            connections.append(stack.enter_context(closing(sqlite3.connect(path, isolation_level=None))))
        yield Pair(connections)


# --- what is refused -----------------------------------------------------------------------------------------


def a_time(chance: random.Random) -> object:
    """Some that are, more that are nearly, and a few that are something else altogether."""
    if chance.random() < 0.02:
        return chance.choice(
            (None, 0, 2026, 2460000.5, b"2026-01-31T12:00:00.000000Z", "", "now", "12:00", "2460000.5")
        )
    year = chance.choice((0, 1, 4, 100, 1900, 2000, 2024, 2026, 9999, chance.randrange(10_000)))
    of_day = (chance.randrange(26), chance.randrange(62), chance.randrange(62))
    if chance.random() < 0.5:
        of_day = chance.choice(((0, 0, 0), (23, 59, 59), (24, 0, 0), (12, 30, 15)))
    fraction = chance.choice((0, 1, 499_999, 500_000, 999_499, 999_500, 999_999))
    day = (chance.randrange(14), chance.randrange(33))
    text: str = "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z".format(year, *day, *of_day, fraction)
    for _ in range(chance.choice((0, 0, 0, 1, 1, 2))):
        text = mangled(chance, text)
    return text


def mangled(chance: random.Random, text: str) -> str:
    """With something else at some place, mostly as long as what was there."""
    place = chance.randrange(len(text) + 1)
    other: str = chance.choice(
        (*"0123456789-+:.,TtZz \t\n/\0é٣", "00", "TT", "  ", "Z ", "   ", "Z  ", "+1 ", "+01:00")
    )
    return text[:place] + other + text[place + len(other) - chance.choice((0, 0, 0, 1, -1)) :]


@pytest.mark.torture
def test_a_time_is_taken_or_refused_as_before(pair: Pair, request: pytest.FixtureRequest) -> None:
    chance = chance_of(request.node.name)
    pair.tell("INSERT INTO dispatcher (name) VALUES ('dispatcher')")
    for _ in range(20_000 * EFFORT):
        pair.tell("UPDATE dispatcher SET last_time = ?", a_time(chance))
    taken, refused = pair.answers["taken, 1"], pair.answers["CHECK constraint failed: ck_dispatcher_times"]
    assert taken > 2_000
    assert refused > 10_000


def test_every_day_and_second_there_is_and_is_not(pair: Pair) -> None:
    pair.tell("INSERT INTO dispatcher (name) VALUES ('dispatcher')")
    days = [
        f"{year}-{month:02}-{day:02}"
        for year in ("0000", "0001", "1900", "2000", "2023", "2024", "9999")
        for month in range(14)
        for day in range(33)
    ]
    times = [
        f"{hour:02}:{minute:02}:{second:02}"
        for hour in range(26)
        for minute, second in ((0, 0), (0, 59), (0, 60), (59, 0), (59, 59), (60, 0), (0, 61), (61, 0), (99, 99))
    ]
    for moment in (*(f"{day}T23:59:59.999999Z" for day in days), *(f"2026-12-31T{time}.999999Z" for time in times)):
        pair.tell("UPDATE dispatcher SET last_time = ?", moment)
    real_days = 6 * 365 + 2  # 2000 and 2024 have one more
    assert pair.answers["taken, 1"] == 1 + real_days + 24 * 4


def a_job(seq: int, state: State) -> dict[str, str]:
    """With nothing that is made up by chance or by the clock."""
    row = {"seq": str(seq), "id": f"'{seq:032x}'", "tenant": "'acme'", "test_suite": "'unit'"}
    row |= {"submitted_at": WHEN_SET["run_at"], "due_at": WHEN_SET["run_at"], "payload": """'{"a": 1}'"""}
    return row | cells(state)


def an_attempt(seq: int, number: int) -> dict[str, str]:
    return {"job_id": f"'{seq:032x}'", **ATTEMPT, "number": str(number), "token": f"'{seq} {number}'"}


BY_CHANCE: Final = ("id", "submitted_at", "due_at", "run_at")
"""What REPLACE makes up where it is given null, another in each database."""
NO_TIMES: Final = ("'2026-02-30T12:00:00.000000Z'", "'2026-01-31T24:00:00.000000Z'", "'2026-01-31 12:00:00.000000Z'")
ODD: Final[dict[str, tuple[str, ...]]] = {
    **{column: (WHEN_SET[column],) for column in COLUMNS},
    **{column: (WHEN_SET[column], *NO_TIMES) for column in COLUMNS if column.endswith("_at")},
    "state": ("'Queued'", "'queued'", "'scheduled'", "'running'", "'failed'", "'pending'"),
    "id": ("id", "'abc'", f"'{'A' * 32}'"),
    "seq": ("seq",),
    "rowid": ("rowid", "rowid + 1"),
    "tenant": ("tenant", "'other'"),
    "queue": ("queue", "'other'"),
    "priority": ("3", "11", "priority"),
    "cost": ("cost", "7"),
    "payload": ("payload", "'{'", "'[]'"),
    "result": ("'{'", "'[]'"),
    "error": ("'out of memory'",) * 3,
    "retry_of": (f"'{'a' * 32}'", f"'{'a' * 31}'"),
    "attempt": ("0", "1", "3", "4"),
    "submitted_at": ("submitted_at", *NO_TIMES),
    "progress": ("0.5", "2"),
}


def test_every_cell_and_every_move_is_taken_or_refused_as_before(pair: Pair) -> None:
    pair.tell(BEGIN)  # as in a copy, where a new job may be in any state
    pair.tell("INSERT INTO tenants (name) VALUES ('acme')")
    seqs = count(1)
    odd = [
        {column: value}
        for column, values in ODD.items()
        for value in (NULL, *values)
        if (column, value) != ("id", NULL)
    ]
    for state in State:
        for change in (*odd, *map(cells, State)):
            pair.tell(insert("jobs", a_job(next(seqs), state) | change))
            pair.tell(insert("jobs", a_job(seq := next(seqs), state)))
            pair.tell(update(seq, change))
    for number, outcome in enumerate(("done", "LAPSED", *Outcome), 1):
        pair.tell(insert("job_attempts", an_attempt(2, number) | {"outcome": f"'{outcome}'"}))
    for number, column in enumerate(("queued_at", "scheduled_at", "started_at", "ended_at"), 100):
        pair.tell(insert("job_attempts", an_attempt(2, number) | {column: NO_TIMES[0]}))
    for wrong in ("paused = 2", "unlimited = -1", f"created_at = {NO_TIMES[0]}", f"updated_at = {NO_TIMES[1]}"):
        pair.tell(f"UPDATE tenants SET {wrong}")

    assert {name for name in OTHER_WORDS if not any(answer.startswith(name) for answer in pair.answers)} == set()
    assert len(pair.rows("jobs")) > 1_000
    assert len(pair.rows("job_attempts")) == len(Outcome)


OTHER_WORDS: Final = (
    *(f"CHECK constraint failed: ck_jobs_{shape.name}" for shape in SHAPES if shape.columns != ("run_at",)),
    *(f"CHECK constraint failed: ck_jobs_{form}" for form in ("state", "times", "ids", "json")),
    *(f"CHECK constraint failed: ck_job_attempts_{form}" for form in ("outcome", "times")),
    *(f"CHECK constraint failed: ck_tenants_{form}" for form in ("flags", "times")),
    *(f"tr_jobs_{rule}: " for rule in ("legal_move", "final", "identity", "request", "priority")),
)


class Lives:
    """Jobs as a person might bring them through their lives by hand, who slips as often as not."""

    def __init__(self, pair: Pair, chance: random.Random) -> None:
        self._pair = pair
        self._chance = chance
        self._seq = 0

    def live(self) -> None:
        """One of them."""
        self._make()
        for _ in range(self._chance.randrange(12) if self._state() else 1):
            self._chance.choice((self._step, self._step, self._step, self._change, self._attempt, self._other))()

    def _make(self) -> None:
        self._seq += 1
        row = a_job(self._seq, self._chance.choice((State.PENDING, *(State.QUEUED,) * 9, *State)))
        self._slip(row, self._chance.choice((0, 0, 0, 0, 1, 2, 3)))
        verb = self._chance.choice(("INSERT", "INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE"))
        self._pair.tell(insert("jobs", row).replace("INSERT", verb, 1))

    def _state(self) -> State | None:
        state = self._pair.value(f"SELECT state FROM jobs WHERE seq = {self._seq}")
        return state and State(state)

    def _step(self) -> None:
        state = self._state() or State.QUEUED
        ahead = [*LEGAL_MOVES[state] - {State.FAILED, State.CANCELLED}] or [*State]
        row = cells(self._chance.choice((*sorted(ahead) * 6, *State)))
        self._slip(row, self._chance.choice((0, 0, 1, 1, 2)))
        verb = self._chance.choice(("UPDATE", "UPDATE", "UPDATE OR IGNORE", "UPDATE OR REPLACE"))
        self._pair.tell(update(self._seq, row).replace("UPDATE", verb, 1))

    def _change(self) -> None:
        row: dict[str, str] = {}
        self._slip(row, self._chance.randrange(1, 4))
        if row:
            self._pair.tell(update(self._seq, row))

    def _attempt(self) -> None:
        row = an_attempt(self._seq, self._chance.randrange(4))
        row["outcome"] = self._chance.choice(("'completed'", "'lapsed'", "'timed out'", "'done'", "'LAPSED'"))
        row[self._chance.choice(("queued_at", "scheduled_at", "started_at", "ended_at"))] = self._odd("started_at")
        self._pair.tell(insert("job_attempts", row))

    def _other(self) -> None:
        others = (
            f"DELETE FROM jobs WHERE seq = {self._seq}",
            f"UPDATE jobs SET run_at = {self._odd('run_at')} WHERE seq > {self._seq - 3}",
            f"UPDATE tenants SET paused = {self._chance.randrange(-1, 3)}",
            f"UPDATE tenants SET created_at = {self._odd('run_at')}",
            "UPDATE job_attempts SET cost = 2",
        )
        self._pair.tell(self._chance.choice(others))

    def _slip(self, row: dict[str, str], columns: int) -> None:
        for column in self._chance.sample((*ODD, *COLUMNS, *COLUMNS), columns):
            value = self._odd(column)
            if "state" not in row or value != column:  # a new row has nothing that could stay
                row[column] = value

    def _odd(self, column: str) -> str:
        if self._chance.random() < 0.1:
            return self._chance.choice(("'x'", "-1", "x'00'", "1.5"))
        return self._chance.choice(ODD[column] if column in BY_CHANCE else (*ODD[column], NULL))


@pytest.mark.torture
def test_jobs_are_taken_and_refused_as_before(pair: Pair, request: pytest.FixtureRequest) -> None:
    lives = Lives(pair, chance_of(request.node.name))
    pair.tell(BEGIN)
    pair.tell("INSERT INTO tenants (name) VALUES ('acme')")
    for _ in range(200 * EFFORT):
        lives.live()
    pair.tell(FINISH)
    for _ in range(200 * EFFORT):
        lives.live()
    assert {state for _, *row in pair.rows("jobs") for state in State if state in row} == set(State)
    assert len(pair.answers) > 50


# --- what it costs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "times"),
    [
        ("UPDATE jobs SET state = 'running', started_at = '' WHERE seq = 1", 1),
        ("UPDATE jobs SET state = 'completed', completed_at = '', lease_expires_at = NULL WHERE seq = 1", 2),
        ("UPDATE jobs SET lease_expires_at = '', progress = 0.5 WHERE seq = 1", 1),
        ("INSERT INTO jobs (tenant, test_suite) VALUES ('acme', 'unit')", 8),
        ("INSERT INTO job_attempts (job_id, number) VALUES ('x', 1)", 4),
    ],
)
async def test_what_sqlite_looks_at(sqlite: Database, statement: str, times: int) -> None:
    """By its own account: no table of words, and of times and JSON only what is set."""
    program = await sqlite.fetch(f"EXPLAIN {statement}")
    codes = {code for _, code, *_ in program}
    called = Counter(detail for _, code, _, _, _, detail, *_ in program if code in ("Function", "PureFunc"))
    assert "Program" in codes, "its triggers are told of, too"
    assert "OpenEphemeral" not in codes
    assert called["date(-1)"] == times
    assert called["json_valid(1)"] == (2 if "INTO jobs" in statement else 0)


# --- the migration itself ------------------------------------------------------------------------------------

_DEFENSIVE: Final = 1010  # SQLITE_DBCONFIG_DEFENSIVE, which an older Python does not name
TEXTS: Final = "SELECT type, name, sql FROM sqlite_master ORDER BY rowid"
ROWS: Final = ("SELECT * FROM jobs ORDER BY seq", "SELECT * FROM job_attempts", "SELECT * FROM tenants")


async def everything(database: Database) -> list[Any]:
    return [await database.fetch(sql) for sql in (TEXTS, *ROWS)]


@pytest.fixture
async def lived(templates: dict[str, Path], tmp_path: Path) -> Sqlite:
    """A database of before, in which there are jobs."""
    made = Sqlite(tmp_path / "lived.db")
    shutil.copyfile(templates[BEFORE], made.path)
    await add_tenant(made)
    seqs = [await add_job(made, state, payload="""'{"a": 1}'""") for state in State]
    await made.execute(insert("job_attempts", {"job_id": f"(SELECT id FROM jobs WHERE seq = {seqs[-1]})", **ATTEMPT}))
    return made


async def test_it_rewrites_no_row_and_can_be_taken_back(lived: Sqlite) -> None:
    before = await everything(lived)
    for _ in range(2):
        await migrate.upgrade(lived.url, AFTER)
        after = await everything(lived)
        assert after[0] != before[0]
        assert after[1:] == before[1:]
        assert await lived.fetch("PRAGMA integrity_check") == [("ok",)]
        with pytest.raises(Refused, match="ck_jobs_times"):
            await lived.execute(f"UPDATE jobs SET run_at = {NO_TIMES[0]} WHERE state = 'pending'")
        await migrate.downgrade(lived.url, BEFORE)
        assert await everything(lived) == before


async def test_who_has_the_file_open_goes_by_the_new_words(lived: Sqlite) -> None:
    with closing(sqlite3.connect(lived.path, isolation_level=None)) as connection:
        wrong = f"UPDATE jobs SET run_at = {NO_TIMES[0]} WHERE state = 'pending'"
        assert _answer(connection, wrong, ()) == "CHECK constraint failed: ck_jobs_times"
        before = connection.execute(f"EXPLAIN {wrong}").fetchall()
        await migrate.upgrade(lived.url, AFTER)
        assert _answer(connection, wrong, ()) == "CHECK constraint failed: ck_jobs_times"
        after = connection.execute(f"EXPLAIN {wrong} AND true").fetchall()  # not the one that was prepared before
        assert len(after) < len(before)


async def test_a_kill_in_the_middle_leaves_nothing_of_it(lived: Sqlite, tmp_path: Path) -> None:
    ahead = Ahead.within(tmp_path)
    ahead.add("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", down=AFTER)
    before = await everything(lived)
    program = "import asyncio, sys; from pathlib import Path; from tests.ahead import Ahead; "
    program += "asyncio.run(Ahead(Path(sys.argv[1])).upgrade(sys.argv[2]))"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(ahead.folder), lived.url, cwd=REPOSITORY
    )
    assert await process.wait() == -signal.SIGKILL
    assert await everything(lived) == before
    await migrate.upgrade(lived.url, AFTER)


async def test_what_is_not_as_it_was_made_is_left_alone(lived: Sqlite) -> None:
    await lived.execute("DROP TRIGGER tr_jobs_priority")
    before = await everything(lived)
    with pytest.raises(SchemaOutdated, match="tr_jobs_priority is not as Fairlane made it, for it does not say: OLD"):
        await migrate.upgrade(lived.url, AFTER)
    assert await everything(lived) == before


@pytest.mark.skipif(sys.version_info < (3, 12), reason="an older Python cannot have SQLite forbid it")
async def test_a_library_that_forbids_it_keeps_its_words(lived: Sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def connect_to_what_forbids(*args: Any, **kw: Any) -> Any:
        connection: Any = connect(*args, **kw)
        connection.setconfig(_DEFENSIVE, 1)
        return connection

    before = await everything(lived)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect_to_what_forbids)
        await migrate.upgrade(lived.url, AFTER)
        assert await everything(lived) == before
        await migrate.downgrade(lived.url, BEFORE)
        await migrate.upgrade(lived.url, AFTER)
    assert await everything(lived) == before
    with pytest.raises(Refused, match="ck_jobs_times"):
        await lived.execute(f"UPDATE jobs SET run_at = {NO_TIMES[0]} WHERE state = 'pending'")
