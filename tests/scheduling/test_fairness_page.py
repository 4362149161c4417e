"""docs/fairness.md is true: every block of it runs, in order, and prints what stands behind its prints."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.pages import DOCS, PROMISED, blocks, printed_by

PAGE: Final = "fairness.md"


def test_every_block_of_the_page_prints_what_it_says() -> None:
    names: dict[str, Any] = {}
    for block in blocks(PAGE):
        assert printed_by(block, names) == PROMISED.findall(block), block


def test_there_are_blocks() -> None:
    assert len(blocks(PAGE)) >= 9
    assert all(PROMISED.search(block) for block in blocks(PAGE))


@pytest.mark.parametrize("words", ["20 dispatches", "at most 19 in", "at most 55", "at most 5.", "ten times as many"])
def test_the_text_has_the_numbers_of_its_blocks(words: str) -> None:
    assert words in " ".join((DOCS / PAGE).read_text().split())
