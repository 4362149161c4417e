"""No secret is ever told: a service that asks for keys, logs all it can and is traced gets secrets in every place where
people put them, right and wrong, and meets faults with them in its hands. None of them stands in anything it writes."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import httpx
import pytest

from app.api.access import SESSION
from app.keys import Key
from tests.databases import Database
from tests.served import PATIENCE_SEC, Served, serving
from tests.traces.conftest import Collector

FAULTY: Final = 77
"""What costs so much meets a fault, as does what is called so."""

FAULTS: Final = (
    ("jobs", "UPDATE", f"{{row}}cost = {FAULTY} AND {{row}}completed_at IS NOT NULL"),
    ("jobs", "INSERT", f"{{row}}max_attempts = {FAULTY}"),
    ("api_keys", "INSERT", f"{{row}}name = '{FAULTY}'"),
)


def break_down(database: Database, table: str, event: str, when: str) -> str:
    """The statement after which such rows are refused. Postgres tells the whole row in its error's details."""
    name = f"by_hand_{table}_{event}"
    if database.kind == "postgres":
        return f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK (({when.format(row='')}) IS NOT TRUE) NOT VALID"
    trigger = f"CREATE TRIGGER {name} BEFORE {event} ON {table} WHEN {when.format(row='NEW.')}"
    return f"{trigger} BEGIN SELECT RAISE(ABORT, 'by hand'); END"


@dataclass
class Secrets:
    """What must be told to nobody."""

    all: list[str] = field(default_factory=list)

    def new(self) -> str:
        """One that nobody has seen."""
        return self.keep(f"secret{uuid4().hex}")

    def keep(self, secret: str) -> str:
        """Look for this one too."""
        self.all.append(secret)
        return secret

    def key(self, text: str) -> str:
        """Look for what is secret of a key."""
        key = Key.read(text)
        assert key is not None
        self.keep(key.secret)
        self.keep(key.digest)
        return text

    def told_in(self, text: str) -> list[str]:
        """Those that stand in it, with what stands around them."""
        places = ((secret, text.find(secret)) for secret in self.all)
        return [f"{secret}: {text[max(0, at - 300) : at + 100]}" for secret, at in places if at >= 0]


class Leaky:
    """Somebody who puts secrets everywhere."""

    def __init__(self, client: httpx.AsyncClient, secrets: Secrets, admin: str) -> None:
        self.client = client
        self.secrets = secrets
        self.admin = admin
        self.statuses = Counter[int]()

    async def ask(self, method: str, path: str, key: str | None = None, **more: Any) -> httpx.Response:
        """Send a request, with the admin's key unless another is given."""
        headers = {"Authorization": f"Bearer {self.admin if key is None else key}", **more.pop("headers", {})}
        answer = await self.client.request(method, path, headers=headers, **more)
        self.statuses[answer.status_code] += 1
        return answer

    def job(self, **more: Any) -> dict[str, Any]:
        """One whose payload nobody else may see."""
        return {"tenant": "acme", "test_suite": "suite", "payload": {self.secrets.new(): self.secrets.new()}, **more}

    async def claimed(self, **more: Any) -> tuple[str, dict[str, str]]:
        """The id of a job that we run, and a body with its token."""
        queue = uuid4().hex
        header = {"Idempotency-Key": self.secrets.new()}
        assert (await self.ask("POST", "/jobs", json=self.job(queue=queue, **more), headers=header)).status_code == 201
        claim = {"worker": "w", "queues": [queue], "start": True}
        [job] = (await self.ask("POST", "/jobs/claim", json=claim)).json()["jobs"]
        return job["id"], {"token": self.secrets.keep(job["lease"]["token"])}

    async def do_all_right(self) -> None:
        """What a day brings."""
        for call, more in (("complete", {"result": self.secrets.new()}), ("fail", {"error": self.secrets.new()})):
            job_id, token = await self.claimed()
            await self.ask("POST", f"/jobs/{job_id}/heartbeat", json=token)
            for _ in range(2):
                assert (await self.ask("POST", f"/jobs/{job_id}/{call}", json={**token, **more})).status_code == 200
            await self.ask("GET", f"/jobs/{job_id}")
            await self.ask("GET", f"/jobs/{job_id}/attempts")
            await self.ask("GET", f"/page/jobs/{job_id}")
        batch = [self.job(idempotency_key=self.secrets.new()) for _ in range(3)]
        assert (await self.ask("POST", "/jobs/batch", json={"jobs": batch})).status_code == 201
        made = await self.ask("POST", "/keys", json={"name": "spare", "role": "reader"})
        key = self.secrets.key(made.json()["key"])
        await self.ask("GET", "/stats", key)
        origin = {"Origin": str(self.client.base_url)}
        login = await self.client.post("/page/login", data={"key": key}, headers=origin)
        self.secrets.key(login.cookies[SESSION])
        assert (await self.client.get("/")).status_code == 200
        await self.ask("DELETE", f"/keys/{made.json()['id']}")
        await self.client.post("/page/logout", headers=origin)

    async def do_all_wrong(self) -> None:
        """Secrets where they do not belong, and requests that make somebody complain."""
        new, wrong = self.secrets.new, self.secrets.key(Key.new().text)
        job_id, token = await self.claimed()
        origin = {"Origin": str(self.client.base_url)}
        for key in (wrong, new(), wrong.upper(), f"{new()} {new()}"):
            await self.ask("GET", "/jobs", key)
            await self.client.post("/page/login", data={"key": key, "to": f"/page/{new()}"}, headers=origin)
        await self.client.post("/page/login", data={"key": self.admin}, headers={"Origin": f"http://{new()}.test"})
        for field_name in ("key", "token", "password", "cursor", "tenant", "to"):
            await self.ask("GET", f"/jobs?{field_name}={new()}")
            await self.ask("GET", f"/page/login?{field_name}={self.admin}")
        for path in (f"/keys/{self.admin}", f"/keys/{wrong}", f"/page/tenant?name={wrong}", f"/{self.admin}/{wrong}"):
            for method in ("GET", "DELETE"):
                await self.ask(method, path)
        await self.ask("PUT", f"/tenants/{wrong}", json={"weight": new()})
        await self.ask("POST", "/jobs", json=self.job(priority=new()), headers={"Idempotency-Key": new() * 10})
        await self.ask("POST", "/jobs", content=f'{{"payload": "{new()}'.encode())
        await self.ask("POST", "/jobs", json=self.job(), headers={"Content-Type": new()})
        same = {"Idempotency-Key": new()}
        for priority in (1, 2):
            await self.ask("POST", "/jobs", json=self.job(priority=priority), headers=same)
        await self.ask("POST", f"/jobs/{job_id}/complete", json={"token": new(), "result": new()})
        await self.ask("POST", f"/jobs/{job_id}/complete", json={**token, "result": new() * 3000})
        await self.ask("POST", f"/jobs/{job_id}/complete", json={**token, new(): new()})
        await self.ask("POST", "/keys", json={"name": new() * 100, "role": new()})
        await self.ask("GET", "/jobs", headers={"traceparent": new(), "tracestate": f"a={new()}", "X-Api-Key": new()})

    async def meet_faults(self) -> None:
        """The service breaks down with secrets in its hands."""
        job_id, token = await self.claimed(cost=FAULTY)
        header = {"Idempotency-Key": self.secrets.new()}
        faults = [
            await self.ask("POST", f"/jobs/{job_id}/complete", json={**token, "result": self.secrets.new()}),
            await self.ask("POST", f"/jobs/{job_id}/fail", json={**token, "error": self.secrets.new(), "retry": False}),
            await self.ask("POST", "/jobs", json=self.job(max_attempts=FAULTY), headers=header),
            await self.ask("POST", "/jobs/batch", json={"jobs": [self.job(), self.job(max_attempts=FAULTY)]}),
            await self.ask("POST", "/keys", json={"name": str(FAULTY), "role": "admin"}),
        ]
        assert [answer.status_code for answer in faults] == [500] * 5


async def test_no_secret_is_told(database: Database, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    secrets = Secrets()
    admin = secrets.key(await asyncio.to_thread(first_key, database))
    url = with_password(database.url, secrets.new())
    async with serving(url, keys="required", log_level="debug", traces="true") as served:
        async with served.client() as client:
            leaky = Leaky(client, secrets, admin)
            await leaky.do_all_right()
            await leaky.do_all_wrong()
            await asyncio.to_thread(send_malformed, served, secrets)
            for place in FAULTS:
                await database.execute(break_down(database, *place))
            await leaky.meet_faults()
            told = [(await leaky.ask("GET", path)).text for path in ("/metrics", "/schema")]
            await database.execute("ALTER TABLE api_keys RENAME TO gone")
            for _ in range(2):
                await leaky.ask("GET", "/jobs", secrets.key(Key.new().text))
        assert await served.stop() == 0
    told += [served.text, *(str(sent) for _, sent in collector.requests)]
    assert {200, 201, 400, 401, 404, 409, 422, 500} <= leaky.statuses.keys()
    assert len(secrets.all) > 70
    assert all(len(text) > 1000 for text in told)
    assert [place for text in told for place in secrets.told_in(text)] == []


@pytest.mark.parametrize("name", ["FAIRLANE_KEYS", "FAIRLANE_PORT", "FAIRLANE_DATABASE_URL", "FAIRLANE_HOST"])
def test_a_key_in_the_wrong_variable_is_not_repeated(name: str) -> None:
    key = Key.new()
    ended = run("serve", **{name: key.text})
    assert ended.returncode == 1
    assert name in ended.stdout + ended.stderr
    assert key.secret not in ended.stdout + ended.stderr


def test_a_database_that_cannot_be_reached_is_told_without_its_password(unused_port: int) -> None:
    secrets = Secrets()
    url = f"postgresql://me:{secrets.new()}@127.0.0.1:{unused_port}/fairlane"
    for command in (("serve",), ("config",), ("migrate", "status"), ("keys", "list")):
        ended = run(*command, FAIRLANE_DATABASE_URL=url)
        assert ended.stdout + ended.stderr
        assert secrets.told_in(ended.stdout + ended.stderr) == []


def first_key(database: Database) -> str:
    return run("keys", "create", "first", "--role", "admin", FAIRLANE_DATABASE_URL=database.url).stdout.strip()


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    environ |= {"FAIRLANE_PORT": "0"} | variables  # whoever has the usual port is not asked to leave
    command = [sys.executable, "-c", "from app.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SEC, check=False, env=environ)


def with_password(url: str, password: str) -> str:
    """The same database; the server of the tests takes whatever password. A SQLite file has none."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite" or parts.password:
        return url
    return urlunsplit(parts._replace(netloc=f"{parts.username}:{password}@{parts.netloc.rpartition('@')[2]}"))


def send_malformed(served: Served, secrets: Secrets) -> None:
    """What no HTTP client would send."""
    new = secrets.new
    address = urlsplit(served.url)
    requests = (
        f"GET /jobs HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {new()}\r\nAuthorization: Bearer {new()}\r\n\r\n",
        f"GET /jobs?key={new()}\x01 HTTP/1.1\r\nHost: here\r\n\r\n",
        f"{new()} /jobs HTTP/1.1\r\nAuthorization: Bearer {new()}\r\n\r\n",
        f"GET /jobs HTTP/1.1\r\nHost: a\r\nHost: b\r\nCookie: {SESSION}={new()}\r\n\r\n",
        f"POST /jobs HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{new()}",
        f"GET /{new()} HTTP/9.9\r\n{new()}\r\n\r\n",
        f"GET /jobs HTTP/1.1\r\nHost: here\r\nAuthorization: {new() * 4000}\r\n\r\n",
    )
    for request in requests:
        with socket.create_connection((address.hostname, address.port), timeout=PATIENCE_SEC) as connection:
            connection.sendall(request.encode("latin-1"))
            connection.shutdown(socket.SHUT_WR)
            try:
                while connection.recv(65536):
                    pass
            except ConnectionResetError:
                continue
