"""Tenants in a file: TOML for people, JSON lines as the command line prints them. Each is checked by the rules of the
service before anything is sent, and all that is wrong is told at once."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import IO, Any, Final

import click
import msgspec

from app.cli.files import name_of
from app.errors import FieldError, InvalidRequest

SETTINGS: Final = ("weight", "rate_per_sec", "burst", "max_running", "max_queued", "paused")
_SHOWN_ONLY: Final = frozenset({"queued", "running", "created_at", "updated_at"})


@dataclass(frozen=True, slots=True)
class NewTenant:
    """A tenant as a file has it; `where` is how a person finds it there."""

    where: str
    name: str
    settings: dict[str, Any]


def read_tenants(file: IO[bytes]) -> list[NewTenant]:
    """The tenants of a file, in its order.

    Raises `click.UsageError` that names everything that is wrong with it.
    """
    reading = _from_toml if name_of(file).endswith(".toml") else _from_json_lines
    try:
        tenants = list(reading(file))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{name_of(file)}: {error}") from None
    if faults := [f"{each.where}: {fault.field} {fault.message}" for each, fault in _faults(tenants)]:
        raise click.UsageError("\n  ".join([f"nothing is set, for {name_of(file)} is wrong", *faults]))
    return tenants


def _from_toml(file: IO[bytes]) -> Iterator[NewTenant]:
    for name, table in tomllib.load(file).items():
        if not isinstance(table, dict):
            raise click.UsageError(f"{name_of(file)}: {name} stands outside a table; a tenant is a table, [acme]")
        settings = {field: None if value == "none" else value for field, value in table.items()}
        yield NewTenant(f"[{name}]", name, settings)


def _from_json_lines(file: IO[bytes]) -> Iterator[NewTenant]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise click.UsageError(f"{name_of(file)}:{number}: not a JSON object: {error}") from None
        settings = {field: value for field, value in found.items() if field not in _SHOWN_ONLY}
        if settings.get("burst", 0) is None:  # as it is shown where there is no rate
            del settings["burst"]
        yield NewTenant(f"line {number}", str(settings.pop("name", "")), settings)


def _faults(tenants: Iterable[NewTenant]) -> Iterator[tuple[NewTenant, FieldError]]:
    # Here, so that the rules of the service are loaded only where a file is checked by them.
    from app.api.decode import decode_body, fault_of
    from app.api.fields import Name
    from app.api.schemas import TenantBody

    times: Counter[str] = Counter()
    for each in tenants:
        times[each.name] += 1
        if times[each.name] == 2:
            yield each, FieldError("name", f"stands there before: {each.name}")
        if message := fault_of(each.name, Name):
            yield each, FieldError("name", message)
        for field, value in each.settings.items():
            if isinstance(value, float) and not isfinite(value):  # TOML has them, and JSON would make them null
                yield each, FieldError(field, f"must be a number, or none for no limit, and not {value}")
        try:
            decode_body(msgspec.json.encode(each.settings), TenantBody)
        except InvalidRequest as error:
            yield from ((each, fault) for fault in error.details)
