"""docs/fairness.md is true: every block of it runs, in order, and prints what stands behind its prints."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest

PAGE: Final = Path(__file__).parents[2] / "docs" / "fairness.md"
BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROMISED: Final = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)


def blocks() -> list[str]:
    return BLOCK.findall(PAGE.read_text())


def test_every_block_of_the_page_prints_what_it_says() -> None:
    names: dict[str, Any] = {}
    for block in blocks():
        output = StringIO()
        with redirect_stdout(output):
            exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102  # this is the page's own code
        assert output.getvalue().splitlines() == PROMISED.findall(block), block


def test_there_are_blocks() -> None:
    assert len(blocks()) >= 9
    assert all(PROMISED.search(block) for block in blocks())


@pytest.mark.parametrize("words", ["20 dispatches", "at most 19 in", "at most 55", "at most 5.", "ten times as many"])
def test_the_text_has_the_numbers_of_its_blocks(words: str) -> None:
    assert words in " ".join(PAGE.read_text().split())
