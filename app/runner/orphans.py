"""The program of the process beside a worker: ends the process groups that outlive it. It is run by itself and imports
little, to start fast and to stay small. Input: `+<group>` when one begins, `-<group>` when it has ended; the end of the
input is the end of the worker."""

from __future__ import annotations

import os
import signal
import sys
import time


def main(kill_after_sec: float) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the worker's end is ours
    groups: set[int] = set()
    for line in sys.stdin:
        change = groups.add if line[0] == "+" else groups.discard
        change(int(line[1:]))
    for number, pause_sec in ((signal.SIGTERM, kill_after_sec), (signal.SIGKILL, 0.0)):
        groups = {group for group in groups if _sent(group, number)}
        _sleep_while_any(groups, pause_sec)


def _sent(group: int, number: int) -> bool:
    """Whether the group was there to be sent the signal."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def _sleep_while_any(groups: set[int], sec: float) -> None:
    ends_at = time.monotonic() + sec
    while any(_sent(group, 0) for group in groups) and time.monotonic() < ends_at:
        time.sleep(0.02)


if __name__ == "__main__":
    main(float(sys.argv[1]))
