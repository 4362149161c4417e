"""Arguments with placeholders: `{test_suite}` stands for the job's, `{{` and `}}` for braces. A value is put in as it
is and never looked at again, so nothing in it can be a placeholder, and each argument stays one argument."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from string import Formatter
from typing import Final

from app.client import Job

FIELDS: Final = ("id", "tenant", "test_suite", "queue", "priority", "cost", "attempt", "max_attempts")
"""The fields of a job that a placeholder may name."""


class BadTemplate(ValueError):
    """The text cannot be a template; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Template:
    """A text, and before some of its pieces none or one field: `(("--suite=", "test_suite"), ("", None))`."""

    pieces: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, text: str, allowed: Collection[str] = FIELDS) -> Template:
        """The template that `text` is.

        Raises `BadTemplate` for a brace alone and for a placeholder that is not `allowed`.
        """
        try:
            return cls(tuple(_pieces(text, allowed)))
        except BadTemplate:
            raise
        except ValueError as error:  # the formatter's own words for a brace alone
            raise BadTemplate(f"{text!r}: {error}; write {{{{ and }}}} for braces") from None

    @classmethod
    def of_literal(cls, text: str) -> Template:
        """A template without placeholders, whatever braces are in the text."""
        return cls(((text, None),))

    @property
    def literal(self) -> str:
        """The text without its placeholders."""
        return "".join(literal for literal, _ in self.pieces)

    @property
    def fields(self) -> frozenset[str]:
        """The fields it names."""
        return frozenset(field for _, field in self.pieces if field is not None)

    def fill(self, job: Job) -> str:
        """The text for this job."""
        return "".join(literal + (value_of(job, field) if field else "") for literal, field in self.pieces)


def fields_of(templates: Iterable[Template]) -> frozenset[str]:
    """The fields that any of them names."""
    return frozenset(field for template in templates for field in template.fields)


def value_of(job: Job, field: str) -> str:
    """A field as it is put into a text."""
    return str(getattr(job, field))


def _pieces(text: str, allowed: Collection[str]) -> Iterator[tuple[str, str | None]]:
    for literal, field, spec, conversion in Formatter().parse(text):
        if field is not None and (field not in allowed or spec or conversion):
            known = " ".join(f"{{{name}}}" for name in allowed)
            whole = field + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            raise BadTemplate(f"{{{whole}}} is no placeholder here; there are {known}, and {{{{ }}}} for braces")
        yield literal, field
