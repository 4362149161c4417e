"""The sample of docs/reporting.md: a morning on a small farm. Platform has twice the weight of the others, web has
many jobs, and data comes late with urgent ones. A worker dies, a suite is flaky, some jobs are called off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.reports.history import Story, Try

DAY: Final = "2026-03-02"
WEIGHTS: Final[Mapping[str, int]] = {"platform": 2, "web": 1, "data": 1}


def done(tenant: str, suite: str, submitted: str, scheduled: str, ended: str, worker: str, **more: object) -> Story:
    """A job that was completed at its first attempt, and started as it was claimed."""
    queued = str(more.get("due", submitted))
    only = Try(worker, queued, scheduled, scheduled, ended, "completed", WEIGHTS[tenant])
    return Story(tenant, suite, "completed", submitted, [only], finished=ended, **more)  # type: ignore[arg-type]


STORIES: Final = (
    # Eight o'clock: there is room for everybody.
    done("platform", "api", "08:02", "08:02:01", "08:12:01", "m1", cost=2),
    done("platform", "api", "08:10", "08:12:02.5", "08:22:02.5", "m1", cost=2),
    done("web", "checkout", "08:15", "08:15:00.25", "08:20", "m2"),
    done("web", "search", "08:16", "08:20:01", "08:26:01", "m2"),
    Story(
        "web",
        "checkout",
        "completed",
        "08:30",
        [
            Try("m2", "08:30", "08:30:02", "08:30:03", "08:35:03", "failed"),
            Try("m1", "08:35:05", "08:35:06", "08:35:06", "08:41:06", "completed"),
        ],
        finished="08:41:06",
    ),
    # Just before nine web submits more than there is room for.
    done("web", "search", "08:50", "08:50:00.5", "09:05:00.5", "m1"),
    done("web", "search", "08:50", "08:50:00.75", "09:10:00.75", "m2"),
    done("web", "search", "08:50", "09:05:02", "09:15:02", "m1"),
    done("web", "search", "08:50", "09:30", "09:40", "m1"),
    Story("web", "search", "cancelled", "08:50", queued="08:50", finished="09:31"),
    # Platform has its turn twice for each of web's; the second worker dies of what it is given.
    done("platform", "api", "09:08", "09:10:02", "09:20:02", "m2", cost=2),
    done("platform", "build", "09:08", "09:15:03", "09:29:03", "m1"),
    Story(
        "platform",
        "soak",
        "failed",
        "09:12",
        [
            Try("m2", "09:12", "09:20:03", "09:20:05", "09:21:35", "lapsed", 2),
            Try("m3", "09:21:37", "09:40:01", "09:40:01", "09:50:01", "timed out", 2),
        ],
        finished="09:50:01",
        cost=3,
    ),
    # Data comes with something urgent for a machine of its own, gives one back, and calls off another that runs.
    Story(
        "data",
        "migrate",
        "completed",
        "09:40",
        [
            Try("g1", "09:40", "09:40:00.125", None, "09:40:10", "released"),
            Try("g1", "09:40:10", "09:40:11", "09:40:12", "09:58:12", "completed"),
        ],
        finished="09:58:12",
        queue="gpu",
        priority=0,
    ),
    Story(
        "data",
        "train",
        "cancelled",
        "09:41",
        [Try("g1", "09:41", "09:58:13", "09:58:14", "10:03:14", "cancelled")],
        finished="10:03:14",
        queue="gpu",
        cost=5,
    ),
    # Ten o'clock: the nightly run was asked for at eight; one runs, one was just claimed, two wait, one is due later.
    done("platform", "nightly", "08:00", "10:00:00.004", "10:20", "m1", due="10:00", cost=4),
    Story("web", "checkout", "running", "10:01", [Try("m3", "10:01", "10:01:01", "10:01:02")]),
    Story("platform", "api", "scheduled", "10:05", [Try("m1", "10:05", "10:20:01", weight=2)], cost=2),
    Story("web", "search", "queued", "10:06", queued="10:06"),
    Story("data", "train", "queued", "10:07", queued="10:07", queue="gpu", cost=5),
    Story("data", "train", "pending", "10:08", due="18:00", queue="gpu", cost=5),
)
