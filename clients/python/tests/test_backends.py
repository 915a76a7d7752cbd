"""Tests the module, the functions and the script: the back end found, and the calls needed."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_throttle_client import (
    AsyncLimiter,
    CommandRejected,
    InvalidArgument,
    Limiter,
    fixed,
    gcra,
    lease,
    policy,
    quota,
    sliding_log,
)
from redis_throttle_client._wire import words
from redis_throttle_client._wire.backends import unexecuted
from redis_throttle_client._wire.call import Call
from redis_throttle_client._wire.library import (
    bundled_version,
    library,
    script,
    script_sha,
    version,
)

from .conftest import ROOT, SERVERS, Server, shared
from .test_cases import CASES, INVALID

API = gcra("api", 6, 10, "60s")
PATIENT: Any = {"timeout_ms": 60_000}
RULE = ("key", "GCRA", "6", "10", "60")
# The reply of a server that has the library of this version.
CURRENT = ".".join(map(str, bundled_version())).encode()


def replaced(text: str, version: str) -> str:
    """Returns the library with a different version."""
    changed = re.sub(r"(?m)^local VERSION = '[^']+'", f"local VERSION = '{version}'", text)
    assert changed != text
    return changed


# -- formats ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("redis_throttle.lua", library),
        ("redis_throttle_script.lua", script),
    ],
)
def test_the_bundled_library_matches_the_repository(name: str, read: Any) -> None:
    """To update: ``cp functions/*.lua clients/python/src/redis_throttle_client/_wire/``."""
    packed = ROOT / "clients/python/src/redis_throttle_client/_wire" / name
    assert packed.read_bytes() == (ROOT / "functions" / name).read_bytes()
    assert read().encode() == packed.read_bytes()


def test_bundled_files_have_their_name_and_version() -> None:
    text = (ROOT / "functions/redis_throttle_script.lua").read_bytes()
    assert script_sha() == hashlib.sha1(text).hexdigest()
    assert f"local VERSION = '{'.'.join(map(str, bundled_version()))}'" in library()


def test_a_call_is_written_for_each_back_end() -> None:
    check = ("RL.GCRA", *RULE[:1], *RULE[2:], "COST", "2")
    assert words.as_function(check) == (
        "FCALL", "rl_gcra", "1", "key", "6", "10", "60", "COST", "2",
    )  # fmt: skip
    assert words.as_function(("RL.PEEK", *RULE)) == ("FCALL_RO", "rl_peek", "1", *RULE)
    several = ("RL.ALL", "{a}:u", "GCRA 6 10 60", "{a}:t", "FIXED 9 60")
    after = ("2", "{a}:u", "{a}:t")
    rules = ("GCRA 6 10 60", "FIXED 9 60")
    assert words.as_function(several) == ("FCALL", "rl_all", *after, *rules)
    assert words.as_function(("RL.PEEKALL", *several[1:]))[:2] == ("FCALL_RO", "rl_peekall")
    assert words.as_script(several, "EVALSHA", "f00") == (
        "EVALSHA", "f00", *after, "ALL", *rules,
    )  # fmt: skip
    for sent in (words.as_function(several), words.as_script(several, "EVAL", "text")):
        assert words.key_of(sent) == "{a}:u"
    assert words.key_of(several) == "{a}:u"
    assert words.key_of(("FCALL", "rl_version", "0")) == ""


@pytest.mark.parametrize(
    ("text", "sent", "proves"),
    [
        ("ERR unknown command 'RL.GCRA', with args beginning with: 'k' ", "RL.GCRA", True),
        ("unknown command `RL.GCRA`, with args beginning with: `k`, ", "RL.GCRA", True),
        ("unknown command 'FCALL', with args beginning with: 'rl_gcra' ", "FCALL", True),
        ("Function not found", "FCALL_RO", True),
        ("NOSCRIPT No matching script. Please use EVAL.", "EVALSHA", True),
        # Errors of a command inside the script, of another command, and of calls that may have run.
        ("Unknown Redis command called from script script: f00", "EVALSHA", False),
        ("unknown command of redis-throttle: see docs/without-the-module.md", "FCALL", False),
        ("unknown command 'GET', with args beginning with: 'k' ", "FCALL", False),
        ("unknown command 'DEL', with args beginning with: 'k' ", "DEL", False),
        ("unknown command 'EVALSHA', with args beginning with: 'k' ", "EVALSHA", False),
        ("Function not found", "RL.GCRA", False),
        ("NOPERM User app has no permissions to run the 'rl.gcra' command", "RL.GCRA", False),
        ("LOADING Redis is loading the dataset in memory", "FCALL", False),
        ("no reply in time", "FCALL", False),
    ],
)
def test_unexecuted_is_true_only_for_errors_of_calls_that_did_not_run(
    text: str, sent: str, proves: bool
) -> None:
    assert unexecuted(redis.ResponseError(text), (sent, "k")) is proves


def test_an_unknown_back_end_is_rejected() -> None:
    for wrong in ("lua", None, 1):
        with pytest.raises(InvalidArgument, match=r"^backend: "):
            Limiter(redis.Redis(), backend=wrong)  # type: ignore[arg-type]


# -- the search, without a server -------------------------------------------------------------


class Script:
    """A transport that returns the given replies in turn, and records the calls."""

    def __init__(self, *replies: Any) -> None:
        self.replies, self.sent = list(replies), list[str]()

    def node(self, key: str) -> None:
        return None

    def call(self, node: None, args: tuple[str, ...], call: Call) -> Any:
        self.sent.append(" ".join(args[:2] if args[0] == "FCALL" else args[:1]))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def close(self) -> None:
        pass


ALLOWED = [1, 6, 5, 0, 6000]
NO_MODULE = redis.ResponseError("unknown command 'RL.GCRA', with args beginning with: 'k' ")
NO_PROBE = redis.ResponseError("unknown command 'RL.PEEK', with args beginning with: 'k' ")
NO_FUNCTION = redis.ResponseError("Function not found")
NO_FCALL = redis.ResponseError("unknown command 'FCALL', with args beginning with: 'k' ")
NOPERM = redis.exceptions.NoPermissionError("User app has no permissions")
NOAUTH = redis.AuthenticationError("Authentication required.")
READONLY = redis.exceptions.ReadOnlyError("You can't write against a read only replica.")
CLASH = redis.ResponseError("Function rl_gcra already exists")
EXISTS = redis.ResponseError("Library 'redis_throttle' already exists")
NO_SCRIPT = redis.exceptions.NoScriptError("No matching script. Please use EVAL.")
LOST = redis.ConnectionError("Connection reset by peer")
CHECK, VERSION, LOAD = "RL.GCRA", "FCALL rl_version", "FUNCTION"
CALL, EVALSHA, EVAL, PROBE = "FCALL rl_gcra", "EVALSHA", "EVAL", "RL.PEEK"


@pytest.mark.parametrize(
    ("backend", "replies", "sent"),
    [
        ("auto", [ALLOWED], [CHECK]),
        ("auto", [NO_MODULE, CURRENT, ALLOWED], [CHECK, VERSION, CALL]),
        ("auto", [NO_MODULE, b"9.0.0", ALLOWED], [CHECK, VERSION, CALL]),
        ("auto", [NO_MODULE, b"0.1.9", b"ok", ALLOWED], [CHECK, VERSION, LOAD, CALL]),
        ("auto", [NO_MODULE, NO_FUNCTION, b"ok", ALLOWED], [CHECK, VERSION, LOAD, CALL]),
        # Another client loads its library at the same moment: a newer or an older one.
        (
            "auto",
            [NO_MODULE, NO_FUNCTION, EXISTS, b"9.0.0", ALLOWED],
            [CHECK, VERSION, LOAD, VERSION, CALL],
        ),
        (
            "auto",
            [NO_MODULE, NO_FUNCTION, EXISTS, b"0.1.0", b"ok", ALLOWED],
            [CHECK, VERSION, LOAD, VERSION, LOAD, CALL],
        ),
        ("auto", [NO_MODULE, NOPERM, CURRENT, ALLOWED], [CHECK, VERSION, EVALSHA, EVALSHA]),
        (
            "auto",
            [NO_MODULE, NO_FCALL, NO_SCRIPT, CURRENT, ALLOWED],
            [CHECK, VERSION, EVALSHA, EVAL, EVALSHA],
        ),
        (
            "auto",
            [NO_MODULE, NO_FUNCTION, NOPERM, CURRENT, ALLOWED],
            [CHECK, VERSION, LOAD, EVALSHA, EVALSHA],
        ),
        # A replica, which the test only peeks.
        (
            "auto",
            [NO_MODULE, NO_FUNCTION, READONLY, CURRENT, ALLOWED],
            [CHECK, VERSION, LOAD, EVALSHA, EVALSHA],
        ),
        # A foreign library: it has the same name, or has a function of the same name.
        (
            "auto",
            [NO_MODULE, *[NO_FUNCTION, EXISTS] * 3, CURRENT, ALLOWED],
            [CHECK, *[VERSION, LOAD] * 3, EVALSHA, EVALSHA],
        ),
        (
            "auto",
            [NO_MODULE, NO_FUNCTION, CLASH, CURRENT, ALLOWED],
            [CHECK, VERSION, LOAD, EVALSHA, EVALSHA],
        ),
        ("functions", [NO_FUNCTION, b"ok", ALLOWED], [VERSION, LOAD, CALL]),
        ("functions", [b"0.1.0", b"ok", ALLOWED], [VERSION, LOAD, CALL]),
        ("script", [ALLOWED], [EVALSHA]),
        ("script", [NO_SCRIPT, CURRENT, ALLOWED], [EVALSHA, EVAL, EVALSHA]),
        ("module", [ALLOWED], [CHECK]),
    ],
)
def test_the_search_sends_the_expected_commands(
    backend: Any, replies: list[Any], sent: list[str]
) -> None:
    script = Script(*replies)
    limiter = Limiter(script, backend=backend)
    assert limiter.check(API, "42").source == "server"
    assert script.sent == sent
    counters = limiter.counters
    assert (counters.allowed, counters.degraded, counters.rejected) == (1, 0, 0)


@pytest.mark.parametrize(
    ("backend", "replies", "sent"),
    [
        ("module", [NO_MODULE], [CHECK]),
        ("auto", [NOPERM], [CHECK]),
        # The back end is missing again after each search: a second search, then the error.
        (
            "auto",
            [NO_MODULE, CURRENT, NO_FUNCTION, NO_PROBE, CURRENT, NO_FUNCTION],
            [CHECK, VERSION, CALL, PROBE, VERSION, CALL],
        ),
        ("functions", [NOPERM], [VERSION]),
        ("functions", [NO_FCALL], [VERSION]),
        ("functions", [NO_FUNCTION, NOPERM], [VERSION, LOAD]),
        ("functions", [NO_FUNCTION, *[EXISTS, NO_FUNCTION] * 2, EXISTS], [VERSION, LOAD] * 3),
        ("script", [NO_SCRIPT, *[CURRENT, NO_SCRIPT] * 2], [EVALSHA, *[EVAL, EVALSHA] * 2]),
        # An unauthenticated client gets the error before the long script text is sent.
        ("auto", [NOAUTH], [CHECK]),
        ("auto", [NO_MODULE, NOAUTH], [CHECK, VERSION]),
        ("auto", [NO_MODULE, NO_FCALL, NOAUTH], [CHECK, VERSION, EVALSHA]),
        ("functions", [NO_FUNCTION, CLASH], [VERSION, LOAD]),
        ("script", [NOPERM], [EVALSHA]),
    ],
)
def test_a_rejected_command_ends_the_search(
    backend: Any, replies: list[Any], sent: list[str]
) -> None:
    script = Script(*replies)
    limiter = Limiter(script, backend=backend)
    with pytest.raises(CommandRejected):
        limiter.check(API, "42")
    assert script.sent == sent
    assert limiter.counters.rejected == 1


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize(
    "passing",
    [LOST, redis.TimeoutError("late"), redis.ResponseError("OOM command not allowed")],
)
def test_a_command_without_a_reply_is_not_repeated(passing: Exception, steps: int) -> None:
    replies = [NO_MODULE, NO_FUNCTION, b"ok"][:steps]
    script = Script(*replies, passing)
    limiter = Limiter(script)
    assert limiter.check(API, "42").source == "error"
    assert script.sent == [CHECK, VERSION, LOAD, CALL][: steps + 1]
    assert limiter.counters.degraded == 1


def test_commands_of_every_server_start_no_search() -> None:
    script = Script(1)
    Limiter(script, backend="functions").forget(API, "42")
    assert script.sent == ["DEL"]


def test_the_back_end_is_remembered_until_it_fails() -> None:
    """Flushes the library, then adds the module, then allows only scripts."""
    script = Script(
        NO_MODULE, CURRENT, ALLOWED, ALLOWED,
        NO_FUNCTION, NO_PROBE, NO_FUNCTION, b"ok", ALLOWED,
        NO_FUNCTION, NOPERM, ALLOWED, ALLOWED,
        NO_MODULE, NOPERM, NO_SCRIPT, CURRENT, ALLOWED, ALLOWED,
        NO_SCRIPT, NO_PROBE, NOPERM, CURRENT, ALLOWED,
    )  # fmt: skip
    limiter = Limiter(script)
    for _ in range(8):
        assert limiter.check(API, "42").source == "server"
    assert script.sent == [
        CHECK, VERSION, CALL, CALL,
        CALL, PROBE, VERSION, LOAD, CALL,
        CALL, PROBE, CHECK, CHECK,
        CHECK, VERSION, EVALSHA, EVAL, EVALSHA, EVALSHA,
        EVALSHA, PROBE, VERSION, EVAL, EVALSHA,
    ]  # fmt: skip


# -- against real servers ----------------------------------------------------------------------


def replies(server: Server, call: tuple[str, ...]) -> Any:
    """Returns the reply to the first call of a new limiter on an empty server."""
    server.command("FLUSHALL")
    with Limiter(server.client(), **PATIENT) as limiter:
        try:
            return limiter._run(limiter._calls.send(call))
        except CommandRejected as error:
            needs_module = "needs the redis-throttle module" in str(error)
            return "needs the module" if needs_module else str(error)


MODULE_ONLY = ("QUOTA", "RESERVE")


@pytest.mark.live
@pytest.mark.parametrize("section", ["calls", "calls_all"])
def test_every_back_end_has_the_same_replies_to_the_shared_cases(
    server: Server, shared_server: Server, section: str
) -> None:
    for case in CASES[section]:
        if case["expect"] == INVALID:
            continue
        call = tuple(case["expect"])
        found = replies(server, call)
        first = [word.split(" ")[0].removeprefix("RL.") for word in call]
        named = "DEFAULT" in " ".join(call) or "USE" not in first
        if server.backend == "module":
            assert found == replies(shared_server, call), call
        elif named and not set(first) & set(MODULE_ONLY):
            # A policy is its default.
            assert found == replies(shared_server, words.without_policies(call)), call
        else:
            assert found == "needs the module", call


@pytest.fixture
def bare(shared_servers: dict[str, Server]) -> Server:
    """Returns a server without the module and without the library."""
    return shared(shared_servers, "functions")


@pytest.mark.live
@pytest.mark.anyio
async def test_ready_returns_the_back_end(server: Server) -> None:
    with Limiter(server.client(), **PATIENT) as limiter:
        assert limiter.ready() == server.backend
    async with AsyncLimiter(redis.asyncio.Redis(port=server.port), **PATIENT) as waiting:
        assert await waiting.ready() == server.backend
    every: Any = list(SERVERS)
    # A server with one back end also has the back ends that follow it in the order.
    there = every[every.index(server.backend) :]
    for name in there:
        server.flush()
        with Limiter(server.client(), backend=name, **PATIENT) as limiter:
            assert limiter.ready() == name
    for name in every[: -len(there)]:
        with (
            Limiter(server.client(), backend=name, **PATIENT) as limiter,
            pytest.raises(CommandRejected),
        ):
            limiter.ready()


@pytest.mark.live
@pytest.mark.anyio
async def test_a_call_after_a_flush_is_counted_once(server: Server) -> None:
    with Limiter(server.client(), **PATIENT) as limiter:
        async with AsyncLimiter(redis.asyncio.Redis(port=server.port), **PATIENT) as waiting:
            found = []
            for _ in range(2):
                found.append(limiter.check(API, "42").remaining)
                found.append((await waiting.check(API, "42")).remaining)
                server.command("SCRIPT", "FLUSH")
                if server.backend == "functions":
                    server.command("FUNCTION", "FLUSH")
            assert found == [5, 4, 3, 2]
            assert limiter.counters.rejected == waiting.counters.rejected == 0


@pytest.mark.live
@pytest.mark.parametrize(("there", "kept"), [("0.0.9", False), ("99.0.0", True)])
@pytest.mark.parametrize("wanted", ["auto", "functions"])
def test_an_older_library_is_replaced_and_a_newer_one_is_kept(
    bare: Server, there: str, kept: bool, wanted: Any
) -> None:
    bare.command("FUNCTION", "LOAD", replaced(library(), there))
    with Limiter(bare.client(), backend=wanted, **PATIENT) as limiter:
        assert limiter.check(API, "42").remaining == 5
    found = version(bare.command("FCALL", "rl_version", "0"))
    assert found == (version(there) if kept else bundled_version())


@pytest.mark.live
def test_a_decision_takes_one_command_after_the_search(server: Server) -> None:
    with Limiter(server.client(), **PATIENT) as limiter:
        limiter.check(API, "42")
        limiter.check(API, "42")
        server.command("CONFIG", "RESETSTAT")
        for _ in range(4):
            limiter.check(API, "42")
        stats = server.command("INFO", "commandstats")
        name = {"module": "rl.gcra", "functions": "fcall", "script": "evalsha"}[server.backend]
        assert int(stats[f"cmdstat_{name}"]["calls"]) == 4
        others = ("rl.", "fcall", "eval", "function", "script")
        commands = [at.removeprefix("cmdstat_") for at in stats]
        assert [at for at in commands if at.startswith(others)] == [name]


@pytest.mark.live
def test_a_user_who_may_not_call_the_module_gets_no_other_back_end(shared_server: Server) -> None:
    user = "ACL", "SETUSER", "app", "reset", "on", "nopass", "~*", "+@all"
    shared_server.command(*user, "-rl.gcra")
    client = shared_server.client(username="app", password="x")
    with Limiter(client, **PATIENT) as limiter:
        with pytest.raises(CommandRejected):
            limiter.check(API, "42")
        assert limiter.ready() == "module"
    assert shared_server.command("FUNCTION", "LIST") == []


COMMANDS = (
    "del get pexpireat pexpiretime pttl set setrange time zadd zcard zcount zrange zrangebyscore "
    "zrem zrevrange zscore"
)


@pytest.mark.live
@pytest.mark.parametrize(
    ("rights", "found"),
    [
        (["fcall", "fcall_ro", "function|load"], "functions"),
        (["fcall", "fcall_ro", "evalsha", "eval"], "script"),
        (["evalsha", "eval"], "script"),
    ],
)
def test_the_permissions_named_on_the_page_are_sufficient(
    bare: Server, rights: list[str], found: str
) -> None:
    user = "ACL", "SETUSER", "app", "reset", "on", "nopass", "~rl:*"
    bare.command(*user, *[f"+{name}" for name in [*rights, *COMMANDS.split()]])
    with Limiter(bare.client(username="app", password="x"), **PATIENT) as limiter:
        assert limiter.ready() == found
        for rule in (API, fixed("day", 3, "1d"), sliding_log("log", 3, "1h")):
            limiter.check(rule, "42")
            assert limiter.refund(rule, "42").allowed
            assert limiter.peek(rule, "42")
        with limiter.lease(lease("jobs", 1, "60s"), "42") as held:
            assert held.renew()
        limiter.forget(API, "42")


@pytest.mark.live
def test_commands_that_need_the_module_are_rejected_without_it(bare: Server) -> None:
    with Limiter(bare.client(), **PATIENT) as limiter:
        for rule in (quota("month", 10, "month"), policy("search")):
            with pytest.raises(CommandRejected, match="needs the redis-throttle module"):
                limiter.check(rule, "42")
        assert limiter.counters.rejected == 2


@pytest.mark.live
def test_a_policy_is_its_default_without_the_module(bare: Server) -> None:
    search = policy("search", default=fixed("any", 9, "1h", aligned=True))
    with Limiter(bare.client(), **PATIENT) as limiter:
        assert limiter.check(search, "42", 2).remaining == 7
        assert limiter.check(search, "42", 9, partial=True, leave=4).granted == 3
        assert limiter.charge(search, "42").remaining == 3
        assert limiter.refund(search, "42", 2).remaining == 5
        rows = limiter.check_all(search.of("42").cost(2), API.of("42")).rows
        assert [row.remaining for row in rows] == [3, 5]
        assert limiter.peek_all(search.of("42").leave("50%"), API.of("42")).rule == "search"
        assert limiter.peek(search, "42", 0).would_allow
