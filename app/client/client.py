"""The two clients, one blocking and one not: thin drivers that do what a flow says. Which calls there are and what
they mean is in `calls`, how one is carried out in `exchange`, when it is sent again in `retry`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from copy import copy
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from inspect import Parameter, Signature, signature
from platform import python_version
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypedDict, TypeVar

import httpx

from app.client import calls
from app.client.errors import FairlaneError, InvalidRequest, Unavailable, UnexpectedAnswer
from app.client.exchange import Call, Operation, Pause, Response, Send
from app.client.retry import Backoff, Terms
from app.client.wire import Job, JobPage

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])

DEFAULT_URL: Final = "http://127.0.0.1:8080"

# The service closes a connection that has been idle for 5 seconds; a request that crosses the closing would be lost.
_LIMITS: Final = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=3.0)
_BACKOFF: Final = Backoff()
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


def _blocking(build: Callable[P, Operation[T]]) -> Callable[Concatenate[Client, P], T]:
    """The method of `Client` that carries out what `build` makes of its arguments."""

    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.carry_out(build(*args, **kwargs))

    return _described(method, "Client", build)


def _awaiting(build: Callable[P, Operation[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """The method of `AsyncClient` that carries out what `build` makes of its arguments."""

    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.carry_out(build(*args, **kwargs))

    return _described(method, "AsyncClient", build)


def _walking(build: Callable[P, Call[JobPage]]) -> Callable[Concatenate[Client, P], Iterator[Job]]:
    """The method of `Client` that walks over the page that `build` asks for and all after it."""

    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[Job]:
        call: Call[JobPage] | None = build(*args, **kwargs)
        while call:
            page = self.carry_out(call)
            yield from page.jobs
            call = calls.following(call, page)

    return _described(method, "Client", build, name="iter_jobs", doc=calls.WALK)


def _walking_async(build: Callable[P, Call[JobPage]]) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[Job]]:
    """The method of `AsyncClient` that walks over the page that `build` asks for and all after it."""

    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Job]:
        call: Call[JobPage] | None = build(*args, **kwargs)
        while call:
            page = await self.carry_out(call)
            for job in page.jobs:
                yield job
            call = calls.following(call, page)

    return _described(method, "AsyncClient", build, name="iter_jobs", doc=calls.WALK)


def _described(method: M, owner: str, build: Callable[..., Any], name: str | None = None, doc: str | None = None) -> M:
    """The method as `help` is to show it: as `build`, with `self`, and without the type of what `build` makes."""
    shown = signature(build)
    this = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [this, *shown.parameters.values()]
    method.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # where `inspect` looks first
    method.__name__ = name or build.__name__
    method.__qualname__ = f"{owner}.{method.__name__}"
    method.__doc__ = doc or build.__doc__
    return method


class _Connected:
    """What both clients have: how long they try, and a pool of connections that is shared with `within`."""

    terms: Terms
    """How long and how patiently it tries."""

    def within(self, deadline_sec: float | None) -> Self:
        """The same client, on the same connections, whose calls have another deadline: `client.within(5).stats()`.
        None is no limit."""
        return self._with(replace(self.terms, deadline_sec=deadline_sec))

    def without_retries(self) -> Self:
        """The same client, on the same connections, whose calls are sent once, and fail at the first failure."""
        return self._with(replace(self.terms, most_tries=1))

    def _with(self, terms: Terms) -> Self:
        other = copy(self)
        other.terms = terms
        return other


class Client(_Connected):
    """A client of a Fairlane service, to be used from any number of threads.

    Calls are sent again until they are answered or the deadline leaves no time for it, where that can do no harm: when
    the connection could not be made or was lost, when no answer came in time, and on 429 and 503, not before the
    moment that `Retry-After` names, and with jitter. A submit carries an idempotency key and so is stored once.
    `claim`, `retry_job` and `cancel_jobs` are sent again only if nothing can have been done.

    Args:
        url: where the service is; a path is put before every call's.
        key: the key to authorize with, where the service wants one.
        deadline_sec: how many seconds a call may take with all its tries; None for no limit.
        try_sec: how many seconds one try may take, beside what the service was asked to wait.
        backoff: the pauses between tries.
        transport: httpx's, for proxies, certificates and sockets of your own.

    Raises:
        ValueError: the URL is none of HTTP's.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        key: str | None = None,
        deadline_sec: float | None = 60.0,
        try_sec: float = 10.0,
        backoff: Backoff = _BACKOFF,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.terms = Terms(deadline_sec=deadline_sec, try_sec=try_sec, backoff=backoff)
        self._http = httpx.Client(**_options(url, key), transport=transport)

    submit = _blocking(calls.submit)
    submit_batch = _blocking(calls.submit_batch)
    submit_all = _blocking(calls.submit_all)
    get_job = _blocking(calls.get_job)
    list_jobs = _blocking(calls.list_jobs)
    iter_jobs = _walking(calls.list_jobs)
    list_attempts = _blocking(calls.list_attempts)
    explain_job = _blocking(calls.explain_job)
    wait_for = _blocking(calls.wait_for)
    cancel_job = _blocking(calls.cancel_job)
    cancel_jobs = _blocking(calls.cancel_jobs)
    patch_job = _blocking(calls.patch_job)
    retry_job = _blocking(calls.retry_job)
    stats = _blocking(calls.stats)

    claim = _blocking(calls.claim)
    start = _blocking(calls.start)
    heartbeat = _blocking(calls.heartbeat)
    heartbeat_all = _blocking(calls.heartbeat_all)
    complete = _blocking(calls.complete)
    fail = _blocking(calls.fail)
    release = _blocking(calls.release)
    finish = _blocking(calls.finish)

    list_tenants = _blocking(calls.list_tenants)
    get_tenant = _blocking(calls.get_tenant)
    put_tenant = _blocking(calls.put_tenant)
    patch_tenant = _blocking(calls.patch_tenant)
    erase_tenant = _blocking(calls.erase_tenant)
    list_queues = _blocking(calls.list_queues)
    put_queue = _blocking(calls.put_queue)
    create_key = _blocking(calls.create_key)
    list_keys = _blocking(calls.list_keys)
    revoke_key = _blocking(calls.revoke_key)
    list_replicas = _blocking(calls.list_replicas)

    def carry_out(self, operation: Operation[T]) -> T:
        """Do what one of the functions in `app.client.calls` asks for; every method above is this."""
        flow = operation.flow(self.terms)
        try:
            step = next(flow)
            while True:
                try:
                    answer = self._do(step)
                except httpx.RequestError as error:
                    step = flow.throw(failure_of(error, self._http.base_url))
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def close(self) -> None:
        """Close all connections, those of `within` too."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _do(self, step: Send | Pause) -> Response | None:
        if isinstance(step, Pause):
            time.sleep(step.sec)
            return None
        arriving = _Arriving(step)
        with self._http.stream(**_as_httpx(step)) as response:
            for chunk in response.iter_bytes():
                arriving.take(chunk)
        return arriving.whole(response)


class AsyncClient(_Connected):
    """`Client` for asyncio: the same calls, awaited; `iter_jobs` is an asynchronous iterator. It belongs to the event
    loop that it is first used on."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        key: str | None = None,
        deadline_sec: float | None = 60.0,
        try_sec: float = 10.0,
        backoff: Backoff = _BACKOFF,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.terms = Terms(deadline_sec=deadline_sec, try_sec=try_sec, backoff=backoff)
        self._http = httpx.AsyncClient(**_options(url, key), transport=transport)

    submit = _awaiting(calls.submit)
    submit_batch = _awaiting(calls.submit_batch)
    submit_all = _awaiting(calls.submit_all)
    get_job = _awaiting(calls.get_job)
    list_jobs = _awaiting(calls.list_jobs)
    iter_jobs = _walking_async(calls.list_jobs)
    list_attempts = _awaiting(calls.list_attempts)
    explain_job = _awaiting(calls.explain_job)
    wait_for = _awaiting(calls.wait_for)
    cancel_job = _awaiting(calls.cancel_job)
    cancel_jobs = _awaiting(calls.cancel_jobs)
    patch_job = _awaiting(calls.patch_job)
    retry_job = _awaiting(calls.retry_job)
    stats = _awaiting(calls.stats)

    claim = _awaiting(calls.claim)
    start = _awaiting(calls.start)
    heartbeat = _awaiting(calls.heartbeat)
    heartbeat_all = _awaiting(calls.heartbeat_all)
    complete = _awaiting(calls.complete)
    fail = _awaiting(calls.fail)
    release = _awaiting(calls.release)
    finish = _awaiting(calls.finish)

    list_tenants = _awaiting(calls.list_tenants)
    get_tenant = _awaiting(calls.get_tenant)
    put_tenant = _awaiting(calls.put_tenant)
    patch_tenant = _awaiting(calls.patch_tenant)
    erase_tenant = _awaiting(calls.erase_tenant)
    list_queues = _awaiting(calls.list_queues)
    put_queue = _awaiting(calls.put_queue)
    create_key = _awaiting(calls.create_key)
    list_keys = _awaiting(calls.list_keys)
    revoke_key = _awaiting(calls.revoke_key)
    list_replicas = _awaiting(calls.list_replicas)

    async def carry_out(self, operation: Operation[T]) -> T:
        """Do what one of the functions in `app.client.calls` asks for; every method above is this."""
        flow = operation.flow(self.terms)
        try:
            step = next(flow)
            while True:
                try:
                    answer = await self._do(step)
                except httpx.RequestError as error:
                    step = flow.throw(failure_of(error, self._http.base_url))
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def aclose(self) -> None:
        """Close all connections, those of `within` too."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _do(self, step: Send | Pause) -> Response | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.sec)
            return None
        arriving = _Arriving(step)
        async with self._http.stream(**_as_httpx(step)) as response:
            async for chunk in response.aiter_bytes():
                arriving.take(chunk)
        return arriving.whole(response)


class _Options(TypedDict):
    base_url: str
    headers: dict[str, str]
    limits: httpx.Limits


def _options(url: str, key: str | None) -> _Options:
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        address = httpx.URL("")
    if address.scheme not in ("http", "https") or not address.host:
        raise ValueError(f"{url!r} is no address of a service; give one like {DEFAULT_URL}")
    headers = {"user-agent": _user_agent(), "accept": "application/json"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    return {"base_url": url, "headers": headers, "limits": _LIMITS}


def _user_agent() -> str:
    try:
        ours = version("fairlane")
    except PackageNotFoundError:  # the folder alone was copied
        ours = "unknown"
    return f"fairlane-python/{ours} httpx/{httpx.__version__} python/{python_version()}"


class _Sent(TypedDict):
    method: str
    url: str
    params: dict[str, str | int] | None
    headers: dict[str, str]
    content: bytes | None
    timeout: float


def _as_httpx(step: Send) -> _Sent:
    request = step.request
    return {
        "method": request.method,
        "url": request.path,
        "params": dict(request.query) or None,
        "headers": dict(request.headers),
        "content": request.body,
        "timeout": step.timeout_sec,
    }


class _Arriving:
    """The body of an answer while it comes. httpx bounds each read and not all of them: an answer that drips would
    outlast every deadline."""

    def __init__(self, step: Send) -> None:
        self._chunks: list[bytes] = []
        self._ends_at = time.monotonic() + step.timeout_sec

    def take(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        if time.monotonic() > self._ends_at:
            raise httpx.ReadTimeout("the answer took too long to arrive")

    def whole(self, response: httpx.Response) -> Response:
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Response(response.status_code, headers, b"".join(self._chunks))


def failure_of(error: httpx.RequestError, address: httpx.URL) -> FairlaneError:
    """What an error of httpx means for a call of the service at this address."""
    where = f"{address.scheme}://{address.netloc.decode()}"  # without the password that may stand in it
    failure: FairlaneError
    match error:
        case httpx.LocalProtocolError() | httpx.UnsupportedProtocol():
            failure = InvalidRequest(f"the request cannot be sent: {error}", 400)
        case httpx.DecodingError() | httpx.TooManyRedirects():
            failure = UnexpectedAnswer(f"the answer of {where} cannot be read: {error}", None)
        case httpx.TimeoutException():
            failure = Unavailable(f"no answer from {where} in time", in_doubt=not isinstance(error, _NOT_SENT))
        case httpx.TransportError() if isinstance(error, _NOT_SENT):
            failure = Unavailable(f"{where} cannot be reached: {error}", in_doubt=False)
        case _:
            failure = Unavailable(f"the connection to {where} was lost: {error}", in_doubt=True)
    failure.__cause__ = error
    return failure
