"""`make bench-page`: puts the figures of the last run into docs/performance.md, between its two marks."""

from __future__ import annotations

import re
import sys
from typing import Final

from bench.peers.environment import ROOT

PAGE: Final = ROOT / "docs" / "performance.md"
FIGURES: Final = ROOT / "bench" / "out" / "figures.md"
BEGIN: Final = "<!-- figures: make bench bench-page -->"
END: Final = "<!-- end of the figures -->"

_BETWEEN: Final = re.compile(f"(?<={re.escape(BEGIN)}\n).*(?={re.escape(END)})", re.DOTALL)


def with_figures(page: str, figures: str) -> str:
    """The page with these figures. Raises `ValueError` if it has no place for them."""
    filled, places = _BETWEEN.subn(lambda _: f"\n{figures.strip()}\n\n", page)
    if places != 1:
        raise ValueError(f"the page must have {BEGIN} once, and {END} below it")
    return filled


def main() -> None:
    """Fill the page."""
    if not FIGURES.exists():
        sys.exit("there are no figures yet: make bench")
    PAGE.write_text(with_figures(PAGE.read_text(), FIGURES.read_text()))


if __name__ == "__main__":
    main()
