"""Process groups, as the system shows them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PROCESSES: Final = Path("/proc")
_ENDED: Final = frozenset({"Z", "X"})


def send(group: int, number: int) -> bool:
    """Send a signal to all of a group; whether anybody was there."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody is there who became another user
        return True
    return True


def is_alive(group: int) -> bool:
    """Whether a process of the group runs. One that has ended and waits to be reaped does not count: in a container
    without an init nobody ever reaps what a command left behind."""
    if not send(group, 0):
        return False
    return not _PROCESSES.is_dir() or any(state not in _ENDED for state in _states(group))


def _states(group: int) -> Iterator[str]:
    """The states of its processes, as proc(5) names them."""
    for name in (entry.name for entry in _PROCESSES.iterdir() if entry.name.isdigit()):
        try:
            stat = (_PROCESSES / name / "stat").read_bytes()
        except OSError:  # it has gone meanwhile
            continue
        state, _, of_group, *_ = stat[stat.rindex(b")") + 1 :].split()  # a program's name may hold anything
        if int(of_group) == group:
            yield state.decode()
