"""A copy that meets trouble: it says which database, and the same command goes on."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from app.store import copied_rows
from app.store import copy as copies
from app.store.copied_rows import NoCopy
from app.store.copy import Copied, Step
from tests.copy.moving import Pair, add_jobs, everything, marks
from tests.databases import Sqlite, run_apart
from tests.disks import clear, fill, small_disk

GO_ON = "; run the same command again to go on"


@pytest.fixture(autouse=True)
def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_rows, "PORTION", 3)


@pytest.fixture
def disk() -> Iterator[Path]:
    with small_disk(8) as made:
        yield made


async def test_the_disk_of_the_copy_is_full(files: Pair, disk: Path) -> None:
    assert isinstance(files.target, Sqlite)
    pair = Pair(files.source, Sqlite(Path(shutil.copy(files.target.path, disk))))
    await add_jobs(pair.source)
    large = "INSERT INTO jobs (tenant, test_suite, payload) VALUES ('acme', 'large', json_quote(hex(zeroblob(30000))))"
    await pair.source.execute(*([large] * 40))
    fill(disk, leaving=1_000_000)

    with pytest.raises(NoCopy, match=rf"^TO, {pair.target.url}, cannot be read or written: .*disk.*{GO_ON}$"):
        await pair.copy()
    clear(disk)
    assert 0 < await pair.target.value("SELECT count(*) FROM jobs") < 40
    await pair.copy()
    assert await everything(pair.target) == await everything(pair.source)


async def test_the_server_of_the_copy_ends_its_session(sqlite_to_postgres: Pair) -> None:
    pair = sqlite_to_postgres
    await add_jobs(pair.source, *map(str, range(10)))
    await pair.target.execute(
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END'",
        "CREATE TRIGGER die BEFORE INSERT ON jobs FOR EACH ROW WHEN (NEW.seq = 8) EXECUTE FUNCTION die()",
    )
    try:
        with pytest.raises(NoCopy, match=rf"^TO, postgresql://.*, cannot be read or written: .*{GO_ON}$"):
            await pair.copy()
        assert await pair.target.value("SELECT max(seq) FROM jobs") == 6
    finally:
        await pair.target.execute("DROP FUNCTION die CASCADE")
    await pair.copy()
    assert await everything(pair.target) == await everything(pair.source)


@pytest.mark.parametrize("side", ["source", "target"])
async def test_another_takes_over_one_of_the_two(sqlite_to_postgres: Pair, side: str) -> None:
    """As a server does that finds it silent."""
    pair = sqlite_to_postgres
    await add_jobs(pair.source, *map(str, range(10)))
    taken: list[Step] = []

    def tell(step: Step) -> None:
        if step.table == "jobs" and step.done == 6 and not taken:
            taken.append(step)
            stolen = getattr(pair, side).execute("UPDATE dispatcher SET epoch = epoch + 1, expires_at = NULL")
            thread = Thread(target=run_apart, args=(stolen,))
            thread.start()
            thread.join()

    called = {"source": "FROM", "target": "TO"}[side]
    with pytest.raises(NoCopy, match=rf"^{called}, .*, was taken over by another server{GO_ON}$"):
        await copies.copy(pair.source.url, pair.target.url, tell)
    assert taken
    await pair.copy()
    assert await everything(pair.target) == await everything(pair.source)


async def test_two_at_the_same_time_make_one(unlike: Pair) -> None:
    await add_jobs(unlike.source, *map(str, range(10)))
    ends = await asyncio.gather(unlike.copy(), unlike.copy(), return_exceptions=True)
    refused = [end for end in ends if not isinstance(end, Copied)]  # the second may also come when the first has done
    assert len(refused) < 2, ends
    for end in refused:
        assert isinstance(end, NoCopy)
        assert "is in use by" in str(end)
    assert await everything(unlike.target) == await everything(unlike.source)
    assert await marks(unlike.source) == [("out", True)]
    assert await marks(unlike.target) == [("in", True)]
