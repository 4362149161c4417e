"""A server that stands still in the middle of a transaction once somebody asks it to, as on a machine that is moved or
swaps."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from app.cli import main
from app.store.conclusion import Conclusion
from app.store.dispatcher import Dispatcher

PROGRAM: Final = "from tests.replica.standing_still import serve; serve()"
"""What Python runs instead of the service's own program."""

PROVES: Final = "Dispatcher.proof"
COMMITS: Final = "Conclusion.commit_plainly"
_PLACES: Final[Mapping[str, Any]] = {PROVES: Dispatcher, COMMITS: Conclusion}

_FLAG, _BEFORE = "STAND_STILL", "STAND_STILL_BEFORE"


class Stop:
    """Asks whoever has written, and is about to prove that it dispatches, or to commit."""

    def __init__(self, folder: Path, before: str = COMMITS) -> None:
        self._flag = folder / "stop"
        self._before = before

    @property
    def environment(self) -> Mapping[str, str]:
        """Of a process that can be asked."""
        return {_FLAG: str(self._flag), _BEFORE: self._before}

    def ask(self) -> None:
        """The next one stands still."""
        self._flag.touch()

    async def is_done(self) -> bool:
        """Whether one does."""
        return not self._flag.exists()


def serve() -> None:
    """The service, until it is asked."""
    flag, before = Path(os.environ[_FLAG]), os.environ[_BEFORE]
    place, name = _PLACES[before], before.partition(".")[2]
    go_on = getattr(place, name)

    def stop_first(*given: Any, **more: Any) -> Any:
        if flag.exists():
            flag.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        return go_on(*given, **more)

    setattr(place, name, stop_first)
    main()
