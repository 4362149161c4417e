"""The settings, read once and handed down as an argument. Each is a `FAIRLANE_` variable and a flag of
`fairlane serve`; what cannot be used is refused with a sentence that names it and says what it takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from app.errors import BadSettings
from app.keys import without_secrets

PREFIX: Final = "FAIRLANE_"
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


_HOST_NAME: Final = re.compile(r"[0-9a-z_-]+(\.[0-9a-z_-]+)*")
_PLACE: Final = re.compile(r"([0-9A-Za-z._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


class _Unusable(ValueError):
    """The text does not fit; the message says what would."""


def _text(raw: str) -> str:
    if not raw.strip() or not raw.isprintable():
        raise _Unusable("some printable text")
    return raw


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(raw: str) -> int:
        if not (raw.isascii() and raw.isdigit() and len(raw) < 19 and low <= int(raw) <= high):
            raise _Unusable(f"a whole number from {low} to {high}")
        return int(raw)

    return parse


def _decimal(raw: str) -> Decimal:
    try:
        number = Decimal(raw if raw.isascii() else "NaN")
    except InvalidOperation:
        number = Decimal("NaN")
    if not (number.is_finite() and 0 <= number <= 1_000_000):
        raise _Unusable("a number from 0 to 1000000, decimals allowed")
    return number


def _rate(raw: str) -> float | None:
    if raw == "none":
        return None
    try:
        number = float(raw if raw.isascii() else "nan")
    except ValueError:
        number = 0.0
    if not 0 < number <= 1e9:
        raise _Unusable("a number over 0, or none for no limit")
    return number


def _days(raw: str) -> int | None:
    if raw == "never":
        return None
    try:
        return _whole(1, 36_500)(raw)
    except _Unusable as expected:
        raise _Unusable(f"{expected}, or never to keep all") from None


def _hosts(raw: str) -> str:
    names = [name.strip().lower().rstrip(".") for name in raw.split(",")]
    if raw != "any" and not all(_HOST_NAME.fullmatch(name) for name in names):
        raise _Unusable("any, or names of hosts without ports, separated by commas")
    return ",".join(names)


def _burst(raw: str) -> int | None:
    return None if raw == "none" else _whole(1, 1_000_000_000)(raw)


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(raw: str) -> str:
        if raw not in words:
            raise _Unusable(" or ".join(words))
        return raw

    return parse


def _flag(raw: str) -> bool:
    if raw.lower() not in _TRUE | _FALSE:
        raise _Unusable("true or false")
    return raw.lower() in _TRUE


def _seconds(raw: str) -> float:
    try:
        number = float(raw if raw.isascii() else "nan")
    except ValueError:
        number = -1.0
    if not 0 <= number <= 3600:
        raise _Unusable("a number of seconds from 0 to 3600")
    return number


def _ttl(raw: str) -> float:
    seconds = _seconds(raw)
    if not 1 <= seconds <= 60:
        raise _Unusable("a number of seconds from 1 to 60")
    return seconds


def _place(raw: str) -> str | None:
    if raw == "none":
        return None
    if not (found := _PLACE.fullmatch(raw)) or not 1 <= int(found["port"]) <= 65535 or raw.startswith(_ANYWHERE):
        raise _Unusable("host:port, as in 10.0.0.7:8080 or [fd00::7]:8080")
    return raw


_ANYWHERE: Final = ("0.0.0.0:", "[::]:")  # nobody is reached there


def _setting(default: str, parse: Callable[[str], Any], means: str, *, none: str = "none") -> Any:
    """`none` is the word for None."""
    return field(metadata={"default": default, "parse": parse, "means": means, "none": none})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of the service; `means` of each stands in the help and in the documentation."""

    host: str = _setting("127.0.0.1", _text, "address to listen on")
    port: int = _setting("8080", _whole(0, 65535), "port to listen on; 0 takes a free one")
    hosts: str = _setting(
        "any", _hosts, "names by which it is reached, separated by commas; requests that name another host are refused"
    )
    keys: str = _setting(
        "auto",
        _one_of("auto", "required", "off"),
        "required: only who shows a key is served; off: everybody who reaches it may do everything; auto: off, and only"
        " this machine may reach it",
    )
    database_url: str = _setting(
        "sqlite:///fairlane.db", _text, "a SQLite file (sqlite:///file) or a Postgres (postgres://...)"
    )
    migrate: bool = _setting("false", _flag, "bring an old Postgres schema up to date at the start")
    policy: str = _setting(
        "virtual-time", _one_of("virtual-time", "penalty"), "what runs next: virtual-time or penalty"
    )
    priority_step: Decimal = _setting("1", _decimal, "shares that one priority level is worth between tenants")
    tick_ms: int = _setting("500", _whole(1, 60_000), "longest pause between two ticks, in milliseconds")
    sqlite_synchronous: str = _setting(
        "full",
        _one_of("full", "normal"),
        "full, or normal: faster, but a power loss may undo the last commits",
    )
    default_rate_per_sec: float | None = _setting(
        "none", _rate, "jobs a second that a tenant may submit if it has no rate of its own; none: no limit"
    )
    default_burst: int | None = _setting("none", _burst, "jobs that such a tenant may submit at once")
    audit_sec: int = _setting(
        "30", _whole(1, 3600), "seconds between two comparisons of memory with the database, which mend what differs"
    )
    retention_days: int | None = _setting(
        "30",
        _days,
        "days after its end that a finished job is deleted with its attempts; never: kept for ever",
        none="never",
    )
    leader_ttl_sec: float = _setting(
        "5", _ttl, "seconds after which another replica takes over from a dispatcher that is silent (Postgres)"
    )
    advertise: str | None = _setting(
        "none", _place, "host:port at which other replicas reach this one; none: where it listens"
    )
    log_format: str = _setting(
        "auto", _one_of("auto", "console", "json"), "console, json, or auto: console on a terminal"
    )
    log_level: str = _setting("info", _one_of("debug", "info", "warning", "error"), "least level to log")
    metrics_queues: int = _setting("100", _whole(0, 10_000), "queues that /metrics shows by name; the rest are other")
    metrics_tenants: int = _setting("0", _whole(0, 10_000), "tenants that /metrics shows by name; the rest are other")
    traces: bool = _setting("false", _flag, "send OpenTelemetry traces, as the standard OTEL_ variables say where to")
    shutdown_grace_sec: float = _setting("5", _seconds, "seconds that requests in flight get at the end")

    def __post_init__(self) -> None:
        if self.default_burst is not None and self.default_rate_per_sec is None:
            raise BadSettings("FAIRLANE_DEFAULT_BURST needs FAIRLANE_DEFAULT_RATE_PER_SEC beside it")

    def shown(self) -> dict[str, str]:
        """Every setting as text, by its variable's name, without the password in the database's address."""
        texts = {PREFIX + f.name.upper(): _as_text(getattr(self, f.name), f.metadata["none"]) for f in fields(self)}
        texts[PREFIX + "DATABASE_URL"] = without_password(self.database_url)
        return texts


def read_settings(environ: Mapping[str, str], flags: Mapping[str, str | None] | None = None) -> Settings:
    """The settings that `environ` and `flags` (by field name; None: not given) say; a flag wins.

    Raises `BadSettings` for a value that cannot be used and for a `FAIRLANE_` variable nobody knows.
    """
    flags = flags or {}
    known = {PREFIX + f.name.upper() for f in fields(Settings)}
    unknown = sorted(name for name in environ if name.startswith(PREFIX) and name not in known | _NOT_THE_SERVICES)
    if unknown:
        raise BadSettings(f"{unknown[0]} is not a setting of Fairlane; `fairlane config` lists them all")
    values: dict[str, Any] = {}
    for f in fields(Settings):
        variable, flag = PREFIX + f.name.upper(), flags.get(f.name)
        name = variable if flag is None else "--" + f.name.replace("_", "-")
        raw = environ.get(variable, f.metadata["default"]) if flag is None else flag
        try:
            values[f.name] = f.metadata["parse"](raw)
        except _Unusable as expected:
            shown = without_secrets(without_password(raw))
            raise BadSettings(f"{name} must be {expected}, not {shown!r}") from None
    return Settings(**values)


_NOT_THE_SERVICES: Final = frozenset(
    PREFIX + name
    for name in (
        *("URL", "KEY"),  # where the command line finds the service, and what it shows there
        *("JOB_ID", "TENANT", "TEST_SUITE", "QUEUE", "PRIORITY", "COST", "ATTEMPT", "MAX_ATTEMPTS"),  # a worker's job
        *("TEST_POSTGRES_URL", "TEST_MIGRATED_BY", "TEST_CHROMIUM", "TEST_EFFORT", "TEST_SEED"),  # the tests'
        "REPORTING_PASSWORD",
    )
)
"""Variables that others know: a service that is started where they are set is not refused for them."""


def without_password(text: str) -> str:
    """The text with `***` in place of each password of an address in it, also where the address is no good."""
    return _PASSWORD_ASKED_FOR.sub(r"\1***", _PASSWORD_OF_USER.sub(r"\1***@", text))


# The second way: a `/`, `?` or `#` in a password, which must be written as %2F, %3F, %23 to be understood.
_PASSWORD_OF_USER: Final = re.compile(r"(://[^\s/?#@:]*:)(?:[^\s/?#]*@|\S*@)")
_PASSWORD_ASKED_FOR: Final = re.compile(r"([?&](?:ssl)?password=)[^\s&]*", re.IGNORECASE)


def _as_text(value: object, none: str) -> str:
    if value is None:
        return none
    return str(value).lower() if isinstance(value, bool) else str(value)
