"""Settings: what each takes, what it refuses in words, and that what is shown can be set again."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from app.errors import BadSettings
from app.settings import Settings, read_settings, without_password

STRANGE = ("", " ", "-1", "1e400", "NaN", "٣", "9" * 30, "a b", "\0", "ä:1", "true,false", "any,")
FREE_TEXT = {"host", "database_url", "hosts"}
"""Of the first two it shows only when they are used; the third has a test of its own."""


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("hosts", "any", "any"),
        ("hosts", "Lanes.example.com", "lanes.example.com"),
        ("hosts", " lanes , lanes.example.com. ", "lanes,lanes.example.com"),
        ("retention_days", "1", 1),
        ("retention_days", "never", None),
        ("audit_sec", "3600", 3600),
        ("metrics_queues", "0", 0),
        ("metrics_tenants", "10000", 10_000),
        ("traces", "TRUE", True),
        ("default_rate_per_sec", "0.5", 0.5),
        ("shutdown_grace_sec", "0", 0.0),
        ("leader_ttl_sec", "1", 1.0),
        ("leader_ttl_sec", "60", 60.0),
        ("advertise", "none", None),
        ("advertise", "10.0.0.7:8080", "10.0.0.7:8080"),
        ("advertise", "[fd00::7]:1", "[fd00::7]:1"),
        ("advertise", "host-a.lan:65535", "host-a.lan:65535"),
    ],
)
def test_what_it_takes(name: str, raw: str, value: Any) -> None:
    assert getattr(read_settings({f"FAIRLANE_{name.upper()}": raw}), name) == value
    assert getattr(read_settings({}, {name: raw}), name) == value


@pytest.mark.parametrize("raw", ["", ",", "lanes,,other", "lanes:8080", "http://lanes", "a b", "ä", "*", "[::1]"])
def test_hosts_are_names_without_ports(raw: str) -> None:
    with pytest.raises(BadSettings, match="FAIRLANE_HOSTS must be any, or names of hosts without ports"):
        read_settings({"FAIRLANE_HOSTS": raw})


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "host",
        "host:",
        ":8080",
        "host:0",
        "host:65536",
        "http://host:80",
        "fd00::7:80",
        "a b:1",
        "0.0.0.0:80",
        "[::]:80",
    ],
)
def test_other_replicas_are_told_a_host_and_a_port(raw: str) -> None:
    with pytest.raises(BadSettings, match="FAIRLANE_ADVERTISE must be host:port"):
        read_settings({"FAIRLANE_ADVERTISE": raw})


@pytest.mark.parametrize("raw", ["0", "0.9", "61", "nan", "soon"])
def test_a_claim_lasts_at_least_a_second_and_at_most_a_minute(raw: str) -> None:
    with pytest.raises(BadSettings, match="FAIRLANE_LEADER_TTL_SEC must be a number of seconds from"):
        read_settings({"FAIRLANE_LEADER_TTL_SEC": raw})


@pytest.mark.parametrize("raw", ["0", "-1", "36501", "1.5", "forever", ""])
def test_days_are_whole_and_at_least_one(raw: str) -> None:
    with pytest.raises(BadSettings, match="from 1 to 36500, or never to keep all, not"):
        read_settings({"FAIRLANE_RETENTION_DAYS": raw})


@pytest.mark.parametrize("name", [f.name for f in fields(Settings) if f.name not in FREE_TEXT])
def test_what_cannot_be_used_is_refused_by_the_name_under_which_it_was_given(name: str) -> None:
    for raw in STRANGE:
        with pytest.raises(BadSettings, match=f"^FAIRLANE_{name.upper()} must be "):
            read_settings({f"FAIRLANE_{name.upper()}": raw})
        with pytest.raises(BadSettings, match=f"^--{name.replace('_', '-')} must be "):
            read_settings({}, {name: raw})


def test_what_is_shown_can_be_set_again() -> None:
    unusual = {
        "FAIRLANE_HOSTS": "lanes,other",
        "FAIRLANE_RETENTION_DAYS": "never",
        "FAIRLANE_PRIORITY_STEP": "0.25",
        "FAIRLANE_DEFAULT_RATE_PER_SEC": "2.5",
        "FAIRLANE_DEFAULT_BURST": "7",
        "FAIRLANE_TRACES": "yes",
    }
    for settings in (read_settings({}), read_settings(unusual)):
        assert read_settings(settings.shown()) == settings


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:secret@host:5432/x", "postgresql://me:***@host:5432/x"),
        ("postgresql://:secret@host/x", "postgresql://:***@host/x"),
        ("postgresql://me:se@cr:et@one:1,two:2/x", "postgresql://me:***@one:1,two:2/x"),
        (
            "postgresql://me@host/x?password=secret&sslmode=require",
            "postgresql://me@host/x?password=***&sslmode=require",
        ),
        (
            "postgres://host/x?a=b&Password=se%63ret&sslpassword=secret",
            "postgres://host/x?a=b&Password=***&sslpassword=***",
        ),
        ("postgresql:///x?host=/run&password=se#cret/?secret", "postgresql:///x?host=/run&password=***"),
        ("postgresql://me:se/c?r#e@t@host/x", "postgresql://me:***@host/x"),
        ("postgresql://me:secret@[::1/x", "postgresql://me:***@[::1/x"),
        (
            "an argument (postgresql://me:secret@host/x), and (http://you:secret@host)",
            "an argument (postgresql://me:***@host/x), and (http://you:***@host)",
        ),
        *(
            (alike, alike)
            for alike in (
                "postgresql://me@host:5432/x?passfile=/secret",
                "postgresql://host:5432/x?application_name=lanes",
                "sqlite:////folder:1/me@home.db",
                "sqlite:///password=1.db",
                "",
            )
        ),
    ],
)
def test_no_password_is_shown(address: str, shown: str) -> None:
    assert without_password(address) == shown
    if address:
        assert read_settings({"FAIRLANE_DATABASE_URL": address}).shown()["FAIRLANE_DATABASE_URL"] == shown
