"""`fairlane keys`: create, list, revoke. They work on the database itself, for somebody has to have the first key; or,
told where, through the service."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from app.cli.connection import open_client
from app.cli.exits import Exit, Stopped
from app.cli.flags import finish, settings_flags, settings_from
from app.cli.json_lines import print_json
from app.cli.names import PATIENCE_SEC, offering
from app.cli.printable import ago, printable
from app.cli.tables import Column, print_table
from app.client import ApiKey, Client, NewApiKey

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from app.store.keys import KeyRow

Command = TypeVar("Command", bound=Callable[..., Any])

_PATIENCE_SEC: Final = 5.0
_SPAN: Final = re.compile(r"([1-9][0-9]{0,4})([hd])", re.ASCII)
_ROLES: Final = ("tenant", "worker", "reader", "admin")


def _where(command: Command) -> Command:
    """The options that say at which desk."""
    command = settings_flags("database_url")(command)
    url = click.option("--url", metavar="URL", help="ask the service there, with an admin's key in FAIRLANE_KEY")
    return url(command)


@click.group()
def keys() -> None:
    """Make keys, list them, take them back.

    They work on the database of FAIRLANE_DATABASE_URL, also while a service runs on it, which goes by it within a
    second; with --url they ask the service instead.
    """


@keys.command()
@click.argument("name")
@click.option("--role", type=click.Choice(_ROLES), required=True, help="what its holder may do")
@click.option("--tenant", help="whose it is, with the role tenant")
@click.option("--queue", "queues", multiple=True, help="what a worker may claim from; several times for several")
@click.option("--expires-in", metavar="90d|12h", help="for how long it is good; for ever if left out")
@click.option("--expires-at", metavar="TIME", help="until when it is good, such as 2030-01-31T09:30:00Z")
@_where
def create(
    name: str,
    role: str,
    tenant: str | None,
    queues: tuple[str, ...],
    expires_in: str | None,
    expires_at: str | None,
    url: str | None,
    database_url: str | None,
) -> None:
    """Make a key. It is printed this once, alone on standard output; NAME is for those who read the list.

    \b
    FAIRLANE_KEY=$(fairlane keys create ci --role tenant --tenant acme --expires-in 90d)
    """
    if (tenant is not None) != (role == "tenant"):
        raise click.UsageError("--tenant and --role tenant go together")
    if queues and role != "worker":
        raise click.UsageError("--queue is for --role worker")
    ends = _end(expires_in, expires_at)
    with _desk(url, database_url) as desk:
        made = desk.create_key(name, role, tenant=tenant, queues=queues or None, expires_at=ends)
    click.echo(made.key)
    click.echo(printable(f"key {made.id}, {_scope(made)}; it is not shown again"), err=True)


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object a line")
@_where
def list_all(url: str | None, database_url: str | None, *, as_json: bool) -> None:
    """List all keys, those that have ended too."""
    with _desk(url, database_url) as desk:
        found = desk.list_keys()
    if as_json:
        for key in found:
            print_json(key)
    else:
        print_table(COLUMNS, found)


def _to_take_back(ctx: click.Context) -> Iterator[tuple[str, str]]:
    with _desk(ctx.params.get("url"), ctx.params.get("database_url"), PATIENCE_SEC) as desk:
        found = desk.list_keys()
    return ((key.id, f"{key.name}, {_scope(key)}") for key in found if key.revoked_at is None)


@keys.command()
@click.argument("key_id", metavar="ID", shell_complete=offering(_to_take_back))
@_where
def revoke(key_id: str, url: str | None, database_url: str | None) -> None:
    """Take a key back for good, and the logins that were made with it."""
    with _desk(url, database_url) as desk:
        revoked = desk.revoke_key(key_id)
    click.echo(printable(f"key {revoked.id} ({revoked.name}) is taken back"))


def _scope(key: ApiKey) -> str:
    """How far it lets its holder."""
    if key.tenant is not None:
        return f"{key.role} {key.tenant}"
    return f"{key.role} of {', '.join(key.queues)}" if key.queues else key.role


def _stands(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "taken back"
    if key.expires_at is None:
        return "good"
    return "ended" if key.expires_at <= datetime.now(UTC) else f"until {key.expires_at:%Y-%m-%d %H:%M}"


COLUMNS: Final = (
    Column[ApiKey]("ID", lambda key: key.id, is_whole=True),
    Column[ApiKey]("NAME", lambda key: key.name),
    Column[ApiKey]("MAY", _scope),
    Column[ApiKey]("STANDS", _stands, is_whole=True),
    Column[ApiKey]("LAST USED", lambda key: ago(key.last_used_at) if key.last_used_at else "never", is_whole=True),
)


def _end(expires_in: str | None, expires_at: str | None) -> datetime | None:
    if expires_in is not None and expires_at is not None:
        raise click.UsageError("either --expires-in or --expires-at")
    if expires_in is not None:
        return _in(expires_in)
    return None if expires_at is None else _at(expires_at)


def _in(expires_in: str) -> datetime:
    found = _SPAN.fullmatch(expires_in)
    if found is None:
        raise click.UsageError("--expires-in is a number of days or hours, such as 90d or 12h")
    number = int(found[1])
    return datetime.now(UTC) + (timedelta(days=number) if found[2] == "d" else timedelta(hours=number))


def _at(expires_at: str) -> datetime:
    from app.api.decode import fault_of
    from app.api.fields import ExpiresAt

    message = fault_of(expires_at, ExpiresAt)
    moment = None if message else msgspec.convert(expires_at, datetime).astimezone(UTC)
    if moment is None or moment <= datetime.now(UTC):
        raise click.UsageError(f"--expires-at {message or 'must lie in the future'}")
    return moment


@contextmanager
def _desk(url: str | None, database_url: str | None, patience_sec: float | None = None) -> Iterator[Client | _Database]:
    if url is None:
        yield _Database(settings_from({"database_url": database_url}).database_url, patience_sec)
        return
    if database_url is not None:
        raise click.UsageError("either --url or --database-url")
    with open_client(url, patience_sec or _PATIENCE_SEC) as client:
        yield client


@dataclass(frozen=True, slots=True)
class _Database:
    """Keys without a service: rows. A database that is slower than `patience_sec` is away; None: the driver decides."""

    url: str
    patience_sec: float | None

    def create_key(
        self,
        name: str,
        role: str,
        *,
        tenant: str | None,
        queues: Sequence[str] | None,
        expires_at: datetime | None,
    ) -> NewApiKey:
        from app.api.decode import fault_of
        from app.api.fields import Label, Name
        from app.keys import Grant, Key, Role
        from app.store import keys as rows

        for option, text, kind in (("NAME", name, Label), ("--tenant", tenant, Name), *_each(queues, Name)):
            if text is not None and (message := fault_of(text, kind)):
                raise click.UsageError(f"{option} {message}")
        key = Key.new()
        grant = Grant(Role(role), tenant, None if queues is None else frozenset(queues))
        row = rows.KeyRow.new(key, name, grant, created_at=datetime.now(UTC), expires_at=expires_at)
        finish(self._do(lambda connection: rows.put(connection, row), makes_file=True))
        return NewApiKey(**_shown(row), key=key.text)

    def list_keys(self) -> list[ApiKey]:
        from app.store import keys as rows

        return [ApiKey(**_shown(row)) for row in finish(self._do(rows.every, is_change=False)) or ()]

    def revoke_key(self, key_id: str) -> ApiKey:
        from app.api.decode import fault_of
        from app.api.fields import JobId
        from app.store import keys as rows

        now = datetime.now(UTC)
        is_possible = not fault_of(key_id, JobId)
        found = finish(self._do(lambda connection: rows.revoke(connection, key_id, now))) if is_possible else None
        if found is None:
            raise Stopped("key not found", Exit.NOT_FOUND)
        return ApiKey(**_shown(found))

    async def _do(
        self, work: Callable[[AsyncConnection], Any], *, makes_file: bool = False, is_change: bool = True
    ) -> Any:
        """In one transaction. A SQLite file that is not there is made, as the service does, or has no keys: None. What
        nobody serves is not changed."""
        from app.store import copies, migrate
        from app.store.dialect import SQLITE
        from app.store.engine import open_engines, parse_url

        async with asyncio.timeout(self.patience_sec):
            if parse_url(self.url).dialect == SQLITE and (await migrate.status(self.url)).current is None:
                if not makes_file:
                    return None
                await migrate.upgrade(self.url)
            async with open_engines(self.url) as engines:
                await migrate.require_usable(engines.writer)
                async with engines.writer.begin() as connection:
                    if is_change:
                        await copies.require_servable(connection)
                    return await work(connection)


def _each(queues: Sequence[str] | None, kind: Any) -> list[tuple[str, str, Any]]:
    return [("--queue", queue, kind) for queue in queues or ()]


def _shown(row: KeyRow) -> dict[str, Any]:
    grant = row.grant
    return {
        "id": row.id,
        "name": row.name,
        "role": str(grant.role),
        "tenant": grant.tenant,
        "queues": None if grant.queues is None else sorted(grant.queues),
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
        "last_used_at": row.last_used_at,
    }
