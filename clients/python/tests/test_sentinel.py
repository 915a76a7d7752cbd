"""Tests that Sentinel leads the limiter to the current primary."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
import redis
import redis.asyncio.sentinel
import redis.sentinel

from redis_throttle_client import AsyncLimiter, Limiter, gcra

from .conftest import Server, binary, free_port, until

pytestmark = pytest.mark.live
API = gcra("api", 6, 10, "60s")


class Sentinel:
    """A Sentinel that watches a primary, and may start a failover alone."""

    def __init__(self, primary: Server) -> None:
        self.port, self._directory = free_port(), Path(primary.directory) / "sentinel"
        self._directory.mkdir()
        config = self._directory / "conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self._directory}\n"
            f"sentinel monitor service 127.0.0.1 {primary.port} 1\n"
            "sentinel down-after-milliseconds service 500\n"
            "sentinel failover-timeout service 3000\n"
        )
        log = self._directory / "log"
        self.process = subprocess.Popen(
            [str(binary()), str(config), "--sentinel", "--logfile", str(log)]
        )

    def command(self, *args: Any) -> Any:
        with redis.Redis(port=self.port) as client:
            return client.execute_command(*args)

    def knows_a_replica(self) -> bool:
        try:
            return len(self.command("SENTINEL", "REPLICAS", "service")) == 1
        except redis.RedisError:
            return False

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.anyio
async def test_sentinel_leads_to_the_new_primary(own_server: Server) -> None:
    with contextlib.ExitStack() as stack:
        other = Server(backend=own_server.backend)
        stack.callback(other.close)
        other.command("REPLICAOF", "127.0.0.1", own_server.port)
        until(lambda: other.command("INFO", "replication")["master_link_status"] == "up")
        watcher = Sentinel(own_server)
        stack.callback(watcher.close)
        until(watcher.knows_a_replica)
        known = [("127.0.0.1", watcher.port)]
        options: Any = {"timeout_ms": 10_000, "breaker_pause_ms": 20}
        limiter = Limiter(redis.sentinel.Sentinel(known).master_for("service"), **options)
        sentinels = redis.asyncio.sentinel.Sentinel(known)
        client: Any = sentinels.master_for("service")
        waiting = AsyncLimiter(client, **options)
        assert limiter.check(API, "42").remaining == 5
        assert (await waiting.check(API, "42")).remaining == 4
        own_server.end()
        assert limiter.check(API, "42").source == "error"
        until(lambda: other.command("ROLE")[0] == b"master")
        until(lambda: limiter.check(API, "42").source == "server")
        for _ in range(1200):
            found = await waiting.check(API, "42")
            if found.source == "server":
                break
            await anyio.sleep(0.05)
        assert found.source == "server"
        limiter.close()
        await waiting.close()
        for closed in (client, *sentinels.sentinels):
            await closed.aclose()
