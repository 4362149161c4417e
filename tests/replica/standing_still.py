"""A server that stands still in the middle of a transaction once somebody asks it to, as on a machine that is moved or
swaps."""

from __future__ import annotations

import os
import signal
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from app.cli import main

PROGRAM: Final = "from tests.replica.standing_still import serve; serve()"
"""What Python runs instead of the service's own program."""

_FLAG: Final = "STAND_STILL"


class Stop:
    """Asks whoever commits next."""

    def __init__(self, folder: Path) -> None:
        self._flag = folder / "stop"

    @property
    def environment(self) -> Mapping[str, str]:
        """Of a process that can be asked."""
        return {_FLAG: str(self._flag)}

    def ask(self) -> None:
        """The next one that has written, and is about to commit, stands still."""
        self._flag.touch()

    async def is_done(self) -> bool:
        """Whether one does."""
        return not self._flag.exists()


def serve() -> None:
    """The service, until it is asked."""
    flag = Path(os.environ[_FLAG])
    commit = AsyncConnection.commit

    def stop_before_it(connection: AsyncConnection) -> Coroutine[Any, Any, None]:
        if flag.exists():
            flag.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        return commit(connection)

    AsyncConnection.commit = stop_before_it  # type: ignore[assignment,method-assign]
    main()
