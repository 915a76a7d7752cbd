"""Tests the errors of real servers: of those that cannot decide now, and rejected commands."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_throttle_client import AsyncLimiter, CommandRejected, Limiter, gcra

from .conftest import Server, free_port, until
from .either import PACKAGES, client_of, kinds, limiter_over

pytestmark = pytest.mark.live
API = gcra("api", 6, 10, "60s")


def busy(server: Server) -> Callable[[], None]:
    server.command("CONFIG", "SET", "busy-reply-threshold", "1")
    other = server.client().connection_pool.get_connection()
    other.send_command("EVAL", "while true do end", "0")

    def is_busy() -> bool:
        try:
            server.command("DBSIZE")
        except redis.ResponseError:
            return True
        return False

    until(is_busy)

    def end() -> None:
        server.command("SCRIPT", "KILL")
        other.disconnect()

    return end


def misconfigured(server: Server) -> Callable[[], None]:
    shutil.rmtree(server.directory)
    server.command("CONFIG", "SET", "save", "3600 1")
    with contextlib.suppress(redis.ResponseError):
        server.command("BGSAVE")
    until(lambda: server.command("INFO", "persistence")["rdb_last_bgsave_status"] != "ok")

    def end() -> None:
        server.command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")

    return end


def setting(name: str, wrong: str, right: str) -> Callable[[Server], Callable[[], None]]:
    def begin(server: Server) -> Callable[[], None]:
        server.command("CONFIG", "SET", name, wrong)
        return lambda: server.command("CONFIG", "SET", name, right)

    return begin


def replica(stale: str) -> Callable[[Server], Callable[[], None]]:
    def begin(server: Server) -> Callable[[], None]:
        server.command("CONFIG", "SET", "replica-serve-stale-data", stale)
        server.command("REPLICAOF", "127.0.0.1", str(free_port()))
        return lambda: server.command("REPLICAOF", "NO", "ONE")

    return begin


PASSING: dict[str, Callable[[Server], Callable[[], None]]] = {
    "BUSY": busy,
    "MISCONF": misconfigured,
    "OOM": setting("maxmemory", "1", "0"),
    "NOREPLICAS": setting("min-replicas-to-write", "1", "0"),
    "READONLY": replica("yes"),
    "MASTERDOWN": replica("no"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("word", PASSING)
async def test_on_error_decides_if_the_server_cannot_decide_now(
    own_server: Server, word: str
) -> None:
    closed = gcra("closed", 6, 10, "60s", on_error="deny")
    options: Any = {"timeout_ms": 60_000, "breaker_pause_ms": 1}
    limiter = Limiter(own_server.client(), **options)
    waiting = AsyncLimiter(redis.asyncio.Redis(port=own_server.port), **options)
    assert limiter.check(API, "42").source == "server"
    assert (await waiting.check(API, "42")).source == "server"
    end = PASSING[word](own_server)
    for rule, allowed in ((API, True), (closed, False)):
        for found in (limiter.check(rule, "42"), await waiting.check(rule, "42")):
            assert (found.allowed, found.source, found.degraded) == (allowed, "error", True)
    end()
    until(lambda: limiter.check(API, "42").source == "server")
    assert limiter.check(closed, "42").remaining == 5
    assert limiter.counters.rejected == 0
    await waiting.close()
    limiter.close()


SUBJECTS = [
    "\U0001f600",
    "日本",
    "é\x00\r\n",
    "{x}y",
    "a" * 129,
    "%D800",
    "日本語" * 40,
    "-1",
    "COST",
]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("secret", [None, b"0123456789abcdef"])
def test_every_unusual_subject_has_its_own_allowance(
    server: Server, encoding: str, secret: bytes | None
) -> None:
    client = server.client(encoding=encoding)
    with Limiter(client, timeout_ms=60_000, hmac_secret=secret) as limiter:
        assert [limiter.check(API, one).remaining for one in SUBJECTS] == [5] * len(SUBJECTS)
        assert [limiter.check(API, one).remaining for one in SUBJECTS] == [4] * len(SUBJECTS)
    keys = server.command("KEYS", "*")
    assert all(len(key) < 200 for key in keys)
    # The key has the bytes that every client writes, regardless of the encoding option.
    assert ("rl:api:日本".encode() in keys) == (secret is None)


# -- credentials -----------------------------------------------------------------------------------


@pytest.fixture
def secured() -> Iterator[Server]:
    """Returns a server with a user ``app``, whose password is ``one``."""
    server = Server()
    server.command("ACL", "SETUSER", "app", "on", ">one", "~*", "&*", "+@all")
    yield server
    server.close()


def rotate(server: Server) -> None:
    server.command("ACL", "SETUSER", "app", "resetpass", ">two")
    server.command("CLIENT", "KILL", "USER", "app")


def provider_of(package: Any, passwords: list[str]) -> Any:
    """Returns a credentials provider of a driver, which gives the last of these passwords."""

    class Provider(package.credentials.CredentialProvider):  # type: ignore[misc]
        def get_credentials(self) -> tuple[str, str]:
            return "app", passwords[-1]

    return Provider()


OPTIONS: Any = {"timeout_ms": 60_000, "breaker_pause_ms": 100}


@kinds
@pytest.mark.parametrize("driver", PACKAGES)
def test_a_wrong_password_is_rejected_until_the_provider_has_the_right_one(
    secured: Server, driver: str, kind: Any
) -> None:
    passwords = ["one"]
    provider = provider_of(PACKAGES[driver], passwords)
    client = client_of(kind, driver, port=secured.port, credential_provider=provider)
    with limiter_over(client, kind, **OPTIONS) as limiter:
        assert limiter.check(API, "42").source == "server"
        rotate(secured)
        # A loop may not have read the end of the connection yet.
        with contextlib.suppress(CommandRejected):
            limiter.check(API, "42")
        for _ in range(9):
            with pytest.raises(CommandRejected, match=r"WRONGPASS|invalid username"):
                limiter.check(API, "42")
        passwords.append("two")
        until(lambda: decides(limiter))


def decides(limiter: Limiter) -> bool:
    """Returns True if the server decides; False while it rejects."""
    try:
        return limiter.check(API, "42").source == "server"
    except CommandRejected:
        return False


def test_a_missing_password_is_rejected_until_none_is_needed(own_server: Server) -> None:
    with Limiter(own_server.client(), **OPTIONS) as limiter, own_server.client() as other:
        assert limiter.check(API, "42").source == "server"
        other.config_set("requirepass", "secret")
        other.client_kill_filter(_type="normal", skipme=True)
        for _ in range(9):
            with pytest.raises(CommandRejected, match=r"authenticated|Authentication"):
                limiter.check(API, "42")
        other.config_set("requirepass", "")
        until(lambda: decides(limiter))
