"""Nothing that is a secret is ever told to a log or a metric, whatever is done with it, right or wrong."""

from __future__ import annotations

import asyncio
from urllib.parse import quote, urlsplit, urlunsplit

import httpx

from app.keys import Key
from tests.cli.test_keys import made
from tests.databases import Database
from tests.served import Served, serving

_MARKS = ("payload-mark-31", "result-mark-32", "idempotency-mark-33", "error-mark-34", "form-mark-35", "query-mark-36")
PASSWORD = "password-mark-37"  # noqa: S105  # of nobody


async def test_no_key_token_password_or_payload_is_told(database: Database) -> None:
    admin = await asyncio.to_thread(made, database, "boss", "--role", "admin")
    wrong = Key.new().text
    async with serving(_with_password(database), keys="required", log_level="debug") as served:
        async with served.client(headers={"Authorization": f"Bearer {admin}"}) as client:
            told = await _do_everything(client, served, admin, wrong)
        metrics = await _metrics(served, admin)
        await served.stop()
    secrets = [*_MARKS, PASSWORD, Key.read(admin), Key.read(wrong), *told]
    for secret in secrets:
        text = secret.secret if isinstance(secret, Key) else str(secret)
        assert text not in served.text, text
        assert text not in metrics, text
    assert '"status":500' not in served.text
    assert len(served.events) > 20


async def _do_everything(client: httpx.AsyncClient, served: Served, admin: str, wrong: str) -> list[str]:
    """Right and wrong; the lease's tokens, logins and new keys that were given on the way."""
    job = {"tenant": "acme", "test_suite": "s", "payload": {"is": _MARKS[0]}}
    await client.post("/jobs", json=job, headers={"Idempotency-Key": _MARKS[2]})
    await client.post("/jobs", json={**job, "cost": 2}, headers={"Idempotency-Key": _MARKS[2]})
    await client.post("/jobs", json={**job, "priority": _MARKS[0]})
    await client.post("/jobs", content=f'{{"payload": "{_MARKS[0]}"'.encode())
    [held] = (await client.post("/jobs/claim", json={"worker": "w", "start": True})).json()["jobs"]
    token = held["lease"]["token"]
    await client.post(f"/jobs/{held['id']}/complete", json={"token": token, "result": _MARKS[1], "more": 1})
    await client.post(f"/jobs/{held['id']}/fail", json={"token": token + "x", "error": _MARKS[3]})
    await client.post(f"/jobs/{held['id']}/complete", json={"token": token, "result": _MARKS[1]})
    await client.get(f"/jobs?tenant=acme&key={quote(wrong)}&mark={_MARKS[5]}")
    made_here = (await client.post("/keys", json={"name": "n", "role": "reader"})).json()
    await client.request("DELETE", f"/keys/{made_here['id']}")
    login = await client.post(
        "/page/login", data={"key": admin, "to": f"/page/jobs?id={_MARKS[4]}"}, headers={"Origin": served.url}
    )
    session = login.headers["set-cookie"].partition(";")[0].partition("=")[2]
    await client.post("/page/login", data={"key": _MARKS[4]}, headers={"Origin": served.url})
    for shown in (wrong, made_here["key"], admin[:-1], admin + "x"):
        await client.get("/stats", headers={"Authorization": f"Bearer {shown}"})
        await client.get("/", headers={"Cookie": f"fairlane_session={shown.strip()}", "Authorization": ""})
    login_key, new_key = Key.read(session), Key.read(made_here["key"])
    assert login_key is not None
    assert new_key is not None
    return [token, login_key.secret, new_key.secret]


async def _metrics(served: Served, admin: str) -> str:
    async with served.client(headers={"Authorization": f"Bearer {admin}"}) as client:
        return (await client.get("/metrics")).text


def _with_password(database: Database) -> str:
    """The same database; on Postgres with a password, which the test server does not ask for."""
    if database.kind == "sqlite":
        return database.url
    parts = urlsplit(database.url)
    user = parts.username or "postgres"
    return urlunsplit(parts._replace(netloc=f"{user}:{PASSWORD}@"))
