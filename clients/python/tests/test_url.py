"""Tests limiters that are created from a URL, on real servers."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from redis_throttle_client import (
    AsyncLimiter,
    InvalidArgument,
    Limiter,
    LimiterClosed,
    Unavailable,
    fixed,
)

from .conftest import Server, free_port, until
from .proxy import Proxy
from .test_drivers import on_module
from .test_promise_counted_once import encrypted as encrypted

DAY = fixed("day", 100, "1d")
PATIENT: Any = {"timeout_ms": 60_000}
USER = ("ACL", "SETUSER", "app", "on", ">p@ss/w:rd", "~*", "+@all")


def connections(server: Server) -> set[bytes]:
    """Returns the ids of the connections to a server, but for that of this call."""
    clients: bytes = server.command("CLIENT", "LIST", "TYPE", "NORMAL")
    return {line.split()[0] for line in clients.splitlines() if b" cmd=client" not in line}


def only(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the other driver."""
    found = importlib.util.find_spec

    def find_spec(name: str, *args: Any) -> Any:
        return None if name == "redis" != package else found(name, *args)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


async def checked(url: str, user: str = "default", **options: Any) -> None:
    """Checks once with a limiter of each kind, and closes both."""
    who = "ACL", "WHOAMI"
    limiter = Limiter.from_url(url, **PATIENT, **options)
    assert limiter.check(DAY, "42").source == "server"
    assert limiter._run(limiter._calls.send(who)) == user.encode()
    limiter.close()
    with pytest.raises(LimiterClosed):
        limiter.check(DAY, "42")
    async with AsyncLimiter.from_url(url, **PATIENT, **options) as aio:
        assert (await aio.check(DAY, "42")).source == "server"
        assert await aio._run(aio._calls.send(who)) == user.encode()
    with pytest.raises(LimiterClosed):
        await aio.check(DAY, "42")


@pytest.mark.live
@pytest.mark.anyio
@pytest.mark.parametrize("package", ["redis", "valkey"])
@pytest.mark.parametrize(
    "form",
    ["redis://127.0.0.1:{port}", "redis://127.0.0.1:{port}/2", "valkey://127.0.0.1:{port}?db=2",
     "redis://app:p%40ss%2Fw%3Ard@127.0.0.1:{port}/", "unix://{path}", "unix:{path}?db=2",
     "redis+unix://{path}?user=app&pass=p%40ss/w%3Ard", "unix://app:p%40ss%2Fw%3Ard@{path}"],
)  # fmt: skip
async def test_a_url_names_a_server(
    shared_server: Server, form: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(package, monkeypatch)
    shared_server.command(*USER)
    before = connections(shared_server)
    url = form.format(port=shared_server.port, path=shared_server.path)
    await checked(url, "app" if "app" in form else "default")
    until(lambda: connections(shared_server) <= before)
    databases = shared_server.command("INFO", "keyspace")
    assert list(databases) == ["db2" if form.endswith("2") else "db0"]


@pytest.mark.live
@pytest.mark.anyio
@pytest.mark.parametrize("backend", ["module"])
async def test_a_url_names_a_server_with_tls(encrypted: Proxy) -> None:
    url = f"rediss://127.0.0.1:{encrypted.port}/"
    await checked(f"{url}?ssl_cert_reqs=none&ssl_check_hostname=False")


@pytest.mark.live
@pytest.mark.anyio
@on_module
@pytest.mark.parametrize("package", ["redis", "valkey"])
async def test_a_url_names_a_node_of_a_cluster(
    cluster: list[Server], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(package, monkeypatch)
    before = {node.port: connections(node) for node in cluster}
    await checked(f"redis://127.0.0.1:{cluster[0].port}", cluster=True)
    until(lambda: all(connections(node) <= before[node.port] for node in cluster))


@pytest.mark.anyio
async def test_a_cluster_that_does_not_reply_is_unavailable() -> None:
    url = f"redis://:s3cret@127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable) as raised:
        Limiter.from_url(url, cluster=True, timeout_ms=50)
    assert "s3cret" not in str(raised.value)
    # Only the first call of the other reads the map.
    async with AsyncLimiter.from_url(url, cluster=True, timeout_ms=50) as aio:
        assert (await aio.check(DAY, "42")).source == "error"


WRONG: list[Any] = [
    None, 6379, b"redis://s3cret", "", "s3cret", "s3cret:6379", "redis:s3cret", "http://s3cret",
    "redis://:s3cret@h:x", "redis://:6379@h:99999", "redis://u:s3/cret@h", "redis://u:12?s3cret@h",
    "redis://u:12/s3cret@h", "redis://u:12#s3cret@h", "redis://h/s3cret", "redis://h:0",
    "redis://[s3cret", "unix://", "unix:///", "unix://s3cret/redis.sock", "redis://h?s3cret",
    "redis://h:1,s3cret:2", "unix:", "unix:/", "unix:s3cret", "redis:/s3cret",
]  # fmt: skip


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_the_error_of_an_invalid_url_never_contains_it(kind: Any) -> None:
    for url in WRONG:
        with pytest.raises(InvalidArgument, match=r"^url: expected redis://") as raised:
            kind.from_url(url)
        # A URL may have a password, also at a wrong place.
        assert "s3" not in str(raised.value)
        assert raised.value.__suppress_context__ or raised.value.__context__ is None


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
@pytest.mark.parametrize(
    ("name", "url", "options"),
    [("url: the driver has no setting colour$", "redis://h?colour=red", {}),
     ("url: the driver has no setting timeout; .* timeout_ms", "redis://h?timeout=50", {}),
     ("url: timeout_ms is an option of the limiter", "redis://h?timeout_ms=50", {}),
     ("url: log_errors is an option of", "unix:///s?log_errors=no", {}),
     ("url: .*db", "redis://h?db=x", {}),
     ("url: ", "redis://h?protocol=9", {}), ("url: .*host", "unix:///s", {"cluster": True}),
     ("url: .*database", "redis://h/1", {"cluster": True}),
     ("url: .*database", "redis://h?db=1", {"cluster": True}),
     ("cluster: ", "redis://h", {"cluster": 1}), ("cluster: ", "redis://h", {"cluster": "yes"}),
     ("timeout: ", "redis://h", {"timeout": 5}), ("sleep: ", "redis://h", {"sleep": 5}),
     ("timeout_ms: ", "redis://h", {"timeout_ms": True}), ("db: ", "redis://h", {"db": 2})],
)  # fmt: skip
def test_a_wrong_setting_of_a_url_is_named(
    kind: Any, name: str, url: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument, match=f"^{name}"):
        kind.from_url(url, **options)


def test_the_error_of_a_url_in_place_of_a_client_names_from_url() -> None:
    with pytest.raises(InvalidArgument, match=r"^client: .*from_url$"):
        Limiter("redis://h")
