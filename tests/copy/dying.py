"""A copy in a process that is killed in its middle. It is imported by processes that know nothing of pytest."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from typing import Any

from sqlalchemy import Engine, event

from app.store import copied_rows
from app.store import copy as copies
from tests.copy.moving import Pair, ignore
from tests.forked import LOADED
from tests.served import PATIENCE_SEC

PORTION = 3


def copy_until(pair: Pair, call: int | None) -> bool:
    """Copy in a process of its own, which is killed as it makes this call of a database, statement or COMMIT, from 1
    on; whether it came to its end before."""
    process = LOADED.Process(target=_copy, args=(pair.source.url, pair.target.url, call))
    process.start()
    process.join(PATIENCE_SEC)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode == 0


def _copy(source_url: str, target_url: str, call: int | None) -> None:
    copied_rows.PORTION = PORTION  # type: ignore[misc]
    calls = itertools.count(1)

    def called(*_of: Any) -> None:
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", called)
    event.listen(Engine, "commit", called)
    asyncio.run(copies.copy(source_url, target_url, ignore))
