"""What is done to the requests that Schemathesis makes up, before it sends them. It is loaded by the process of the
attack, not by the tests."""

from __future__ import annotations

import re
from typing import Any, Final

import schemathesis

_MOST_ITEMS: Final = 100
_EXACT: Final = 2**53
_FAR: Final = re.compile("0|1[0-8]|19[0-6]|1970-01-01|9999|9998-12-31")


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:  # noqa: ARG001
    """Of bodies that are to be accepted."""
    if case.meta is not None and case.meta.generation.mode.is_positive and isinstance(case.body, dict):
        case.body = _shorter(_as_it_is_meant(case.body))


def _as_it_is_meant(value: Any) -> Any:
    """Without what JSON Schema cannot say: it takes 1.0 for an integer, and knows no range of times."""
    match value:
        case float() if value.is_integer() and abs(value) <= _EXACT:
            return int(value)
        case dict():
            return {name: _as_it_is_meant(held) for name, held in value.items() if not _is_no_time(name, held)}
        case list():
            return [_as_it_is_meant(held) for held in value]
    return value


def _is_no_time(name: str, value: Any) -> bool:
    """A time out of the range, or one that must lie in the future and does not."""
    return (name == "run_at" and _FAR.match(str(value)) is not None) or (
        name == "expires_at" and not "2100" < str(value) < "9998"
    )


def _shorter(body: dict[str, Any]) -> dict[str, Any]:
    """Claims do not wait, and lists are short, so that the attack is made of many requests and not of long ones."""
    shorter = {name: held[:_MOST_ITEMS] if isinstance(held, list) else held for name, held in body.items()}
    return shorter | ({"wait_sec": 0} if "wait_sec" in body else {})
