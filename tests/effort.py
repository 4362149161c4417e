"""How hard the tests try that attack the service: a little each time, and for hours when told to (`make torture`)."""

from __future__ import annotations

import os
import random
from typing import Final

EFFORT: Final = int(os.environ.get("FAIRLANE_TEST_EFFORT", "1"))
"""1 in `make test`. Rounds, examples and restarts are multiplied by it."""


def chance_of(name: object) -> random.Random:
    """Chance for one attack; its seed is printed, and FAIRLANE_TEST_SEED repeats it. With effort 1 it is the same each
    time, so that what fails is a change of the code; otherwise each run looks elsewhere."""
    seed = os.environ.get("FAIRLANE_TEST_SEED") or (str(name) if EFFORT == 1 else f"{random.getrandbits(64):x}")
    print(f"{name}: FAIRLANE_TEST_SEED={seed}")  # noqa: T201 - pytest shows it where the test fails
    return random.Random(seed)
