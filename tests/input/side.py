"""One of two services that are asked the same, each on its own database: what must be there before a call, and what is
read afterwards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from app.api.front import Front
from tests.api.asgi import Call
from tests.input.places import Place

JSON: Final = [(b"host", b"here"), (b"content-type", b"application/json")]
JOB: Final = {"tenant": "acme", "test_suite": "smoke"}
_MARK: Final = "<here it stands>"

_REPORTS: Final = ("start_job", "beat", "complete_job", "fail_job", "release_job", "finish_jobs", "beat_for_jobs")
_BODIES: Final[dict[str, dict[str, Any]]] = {
    "submit_job": JOB,
    "submit_batch": {"jobs": [JOB]},
    "change_job": {"priority": 2},
    "cancel_jobs": {"tenant": "idle"},
    "claim_jobs": {"worker": "w"},
    "fail_job": {"error": "broke"},
    "create_key": {"name": "ci", "role": "worker"},
}
"""What each call needs, but for tokens."""

_LOOKS: Final = {"put_queue": "/queues"}


@dataclass(frozen=True)
class Scene:
    """A call that is right, up to the one place. `look` is where what came of it can be read."""

    parts: dict[str, str]
    body: dict[str, Any]
    look: str | None = None

    def look_at(self, answer: Any) -> str:
        """Where to read it: what is new is found by its answer."""
        match answer:
            case _ if self.look:
                return self.look
            case {"jobs": [{"id": job_id}, *_]} | {"id": job_id, "tenant": _, "state": _}:
                return f"/jobs/{job_id}"
            case {"name": name, "weight": _}:
                return f"/tenants/{quote(name, safe='')}"
        return "/stats"


class Side:
    """A service, spoken to without a socket between."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._lease: tuple[str, str] | None = None

    async def ask(self, place: Place, value: bytes) -> tuple[Call, Scene]:
        """A call that is right but for what stands in one place."""
        scene = await self._scene(place)
        parts = {name: quote(part).encode() for name, part in scene.parts.items()}
        query, body = b"", json.dumps(scene.body).encode() if place.takes_body else b""
        if place.where == "path":
            parts[str(place.steps[0])] = value
        elif place.where == "query":
            query = quote(str(place.steps[0])).encode() + b"=" + value
        else:
            body = json.dumps(_put(scene.body, place.steps)).encode().replace(b'"%b"' % _MARK.encode(), value)
        path = place.path.encode()
        for name, part in parts.items():
            path = path.replace(b"{%b}" % name.encode(), part)
        call = await self._call(place.method, path, query, body, hangs_up=place.operation == "watch_moves")
        if call.status < 300 and place.operation in _REPORTS:
            self._lease = None
        return call, scene

    async def well(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a call that must go well."""
        call = await self._call(method, path.encode(), b"", b"" if body is None else json.dumps(body).encode())
        assert call.status < 300, (method, path, body, call.sent)
        return call.answer

    async def _call(self, method: str, path: bytes, query: bytes, body: bytes, *, hangs_up: bool = False) -> Call:
        call = Call(method, path, query, headers=JSON, body=[body])
        if hangs_up:
            call.hangs_up.set()
        return await call.of(self._front)

    async def _scene(self, place: Place) -> Scene:
        body = dict(_BODIES.get(place.operation, {}))
        if place.operation in _REPORTS:
            return await self._report(place, body)
        if place.operation in ("claim_jobs", "change_job"):
            job = await self.well("POST", "/jobs", JOB)
            look = None if place.operation == "claim_jobs" else f"/jobs/{job['id']}"
            return Scene({"job_id": job["id"]}, body, look)
        if place.operation in ("patch_tenant", "erase_tenant"):
            await self.well("PUT", "/tenants/there", {})
            return Scene({"name": "there"}, body, "/tenants" if place.operation == "erase_tenant" else "/tenants/there")
        if place.operation == "create_key":
            return Scene({}, body | ({"role": "tenant"} if place.steps == ("tenant",) else {}), "/keys")
        return Scene({"name": "there"}, body, _LOOKS.get(place.operation))

    async def _report(self, place: Place, body: dict[str, Any]) -> Scene:
        job_id, token = await self._leased(start=place.operation != "start_job")
        look = f"/jobs/{job_id}"
        lease = {"id": job_id, "token": token}
        if place.operation == "finish_jobs":
            end = {"outcome": "completed"} if place.steps[-1] == "result" else {"outcome": "failed", "error": "broke"}
            return Scene({}, {"results": [lease | end]}, look)
        if place.operation == "beat_for_jobs":
            return Scene({}, {"leases": [lease]}, look)
        return Scene({"job_id": job_id}, body | {"token": token}, look)

    async def _leased(self, *, start: bool) -> tuple[str, str]:
        """A job in a worker's hands, the same one until something has become of it."""
        if self._lease is None or not start:
            await self.well("POST", "/jobs", JOB | {"queue": "reports"})
            claim = {"worker": "w", "queues": ["reports"], "start": start}
            [job] = (await self.well("POST", "/jobs/claim", claim))["jobs"]
            lease = (job["id"], job["lease"]["token"])
            if not start:
                return lease
            self._lease = lease
        return self._lease


def _put(held: Any, steps: tuple[str | int, ...]) -> Any:
    """The same, with the mark where the steps lead."""
    if not steps:
        return _MARK
    step, *rest = steps
    if isinstance(step, int):
        return [_put(held[0] if held else {}, tuple(rest)), *(held or [])[1:]]
    inner = held.get(step) if isinstance(held, dict) else None
    return {**held, step: _put(inner, tuple(rest))}
