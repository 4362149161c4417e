"""Pages of docs/ whose Python runs: their blocks, and what these promise to print."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).parents[1] / "docs"
PROMISED: Final = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
"""What stands behind the prints of a block."""

_BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[str]:
    """The page's blocks of Python, in its order."""
    return _BLOCK.findall((DOCS / page).read_text())


def printed_by(block: str, names: dict[str, Any]) -> list[str]:
    """The lines that a block prints; `names` is what the blocks before it have left."""
    output = StringIO()
    with redirect_stdout(output):
        exec(compile(block, "a page of docs", "exec"), names)  # noqa: S102  # this is the page's own code
    return output.getvalue().splitlines()
