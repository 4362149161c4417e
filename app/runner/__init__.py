"""Runs a command for each job: what `fairlane worker` does with what it has claimed. It knows processes and files, and
of Fairlane nothing but the client."""

from __future__ import annotations

from app.runner.command import Command, CommandFailed, Result, inherited_environ, variable_of
from app.runner.guard import Guard, guarding
from app.runner.template import FIELDS, BadTemplate, Template, fields_of

__all__ = [
    "FIELDS",
    "BadTemplate",
    "Command",
    "CommandFailed",
    "Guard",
    "Result",
    "Template",
    "fields_of",
    "guarding",
    "inherited_environ",
    "variable_of",
]
