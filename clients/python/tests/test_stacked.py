"""Tests limits that stand above one another in FastAPI, and those of websockets."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
import redis.asyncio
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, WebSocket

from redis_throttle_client import AsyncLimiter, Decision, Rule, fixed, gcra, lease
from redis_throttle_client.fastapi import RateLimits
from redis_throttle_client.testing import FakeServer

from .conftest import Server
from .fakes import Granting, settled
from .test_middleware import PEER, get

pytestmark = pytest.mark.anyio
MINUTE = gcra("minute", 6, 6, "60s")
HOUR = fixed("hour", 3, "1h")
DAY = fixed("day", 2, "1d")
USERS = fixed("users", 1, "1h")
THREE = fixed("three", 3, "1h")
JOBS = lease("jobs", 1, "60s")


@pytest.fixture
def server() -> Granting:
    return Granting()


@pytest.fixture
def limits(server: FakeServer) -> RateLimits:
    return RateLimits(server.async_limiter())


def sent(server: FakeServer) -> list[list[str]]:
    """Returns the rules of each call."""
    return [[one.split(":")[1] for one in call if one.startswith("rl:")] for call in server.calls]


def stacked(limits: RateLimits, **options: Any) -> FastAPI:
    """Returns an application that has a limit, as have its router and its route."""
    app = FastAPI(dependencies=[Depends(limits.limit(MINUTE))])
    limits.install(app)
    router = APIRouter(dependencies=[Depends(limits.limit(HOUR, **options))])
    day = limits.limit([DAY, (USERS, lambda request: request.headers["X-User"])])

    @router.get("/rows", dependencies=[Depends(day)])
    async def rows(decision: Annotated[Decision, Depends(day)]) -> dict[str, int]:
        return {one.rule: one.remaining for one in decision.rows}

    app.include_router(router)
    return app


async def test_limits_of_application_router_and_route_are_one_call(
    server: FakeServer, limits: RateLimits
) -> None:
    app = stacked(limits)
    first = await get(app, "/rows", x_user="a")
    assert (first.status_code, first.json()) == (200, {"day": 1, "users": 0})
    assert first.headers["ratelimit"].split(", ")[0] == '"minute";r=5;t=10'
    denied = await get(app, "/rows", x_user="a")
    assert (denied.status_code, denied.json()["violated-policies"]) == (429, ["users"])
    # The denied call took nothing.
    assert denied.headers["ratelimit"].split(", ")[:2] == ['"minute";r=5;t=10', '"hour";r=2;t=3600']
    assert sent(server) == [["minute", "hour", "day", "users"]] * 2
    # Without a subject of the last limit, those before it count the request.
    assert (await get(app, "/rows")).status_code == 400
    assert sent(server)[2:] == [["minute", "hour"]]


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        # One call needs one hash tag, and has each key once.
        ({"tag": lambda request: "t"}, [["minute"], [], ["day", "users"]]),
        ({"skip": lambda request: True}, [["minute", "day", "users"]]),
    ],
)
async def test_limits_with_other_options_have_their_own_call(
    server: FakeServer, limits: RateLimits, options: Any, calls: Any
) -> None:
    assert (await get(stacked(limits, **options), "/rows", x_user="a")).status_code == 200
    assert sent(server) == [one or ["{t}"] for one in calls]


async def test_a_rule_that_stands_twice_counts_once(server: FakeServer, limits: RateLimits) -> None:
    app = FastAPI(dependencies=[Depends(limits.limit([HOUR, MINUTE]))])
    limits.install(app)
    once_more, other = limits.limit(MINUTE, cost=2), limits.limit(fixed("hour", 9, "1d"))
    ones: dict[str, list[Any]] = {"/": [once_more], "/day": [limits.limit(DAY), once_more]}
    for path, depends in ones.items():

        @app.get(path, dependencies=[Depends(one) for one in depends])
        async def home(decision: Annotated[Decision, Depends(once_more)]) -> int:
            return decision.remaining

    assert (await get(app)).json() == 4
    # The denial of one takes nothing.
    await limits._limiter.check(DAY, PEER[0], cost=2)
    assert (await get(app, "/day")).status_code == 429
    assert (await get(app)).json() == 2
    expected = [["hour", "minute"], ["day"], ["hour", "minute", "day"], ["hour", "minute"]]
    assert sent(server) == expected
    # A rule that only has the same name is another one.
    server.calls.clear()
    app.get("/other", dependencies=[Depends(other)])(lambda: None)
    assert (await get(app, "/other")).status_code == 200
    assert sent(server) == [["hour", "minute"], ["hour"]]


async def test_a_rule_counts_once_in_all_calls_of_limits_that_follow_one_another(
    server: FakeServer, limits: RateLimits
) -> None:
    first = limits.limit([MINUTE, HOUR])
    app = FastAPI(dependencies=[Depends(first)])
    limits.install(app)
    tagged = limits.limit(DAY, tag=lambda request: "t")
    # The rule may be created again. Another subject is not the same.
    last = limits.limit([gcra("minute", 6, 6, "60s"), (THREE, lambda request: "a")], cost=2)
    other = limits.limit(MINUTE, key=lambda request: "a")

    @app.get("/", dependencies=[Depends(tagged), Depends(other)])
    async def home(
        by_first: Annotated[Decision, Depends(first)], by_last: Annotated[Decision, Depends(last)]
    ) -> list[list[int]]:
        return [[one.remaining for one in decision.rows] for decision in (by_first, by_last)]

    assert (await get(app)).json() == [[4, 2], [4, 1]]
    assert sent(server) == [["minute", "hour"], ["{t}"], ["minute", "three"]]


async def test_a_limit_is_checked_once_on_both_sides_of_another_dependency(
    server: FakeServer, limits: RateLimits
) -> None:
    minute, users = limits.limit(MINUTE), limits.limit(USERS)
    app = FastAPI(dependencies=[Depends(minute)])
    limits.install(app)
    between = [Depends(lambda: None), Depends(users), Depends(minute)]
    app.get("/", dependencies=between)(lambda: None)
    assert (await get(app)).status_code == 200
    assert sent(server) == [["minute"], ["users"]]


@pytest.mark.parametrize("fails", ["key", "cost", "rule"])
async def test_a_limit_counts_requests_that_a_function_of_the_next_one_refuses(
    server: FakeServer, limits: RateLimits, fails: str
) -> None:
    def refuse(request: Request) -> Any:
        raise HTTPException(401)

    refusing: Any = {"rules": refuse if fails == "rule" else HOUR}
    if fails != "rule":
        refusing[fails] = refuse
    app = FastAPI()
    limits.install(app)
    ones = [limits.limit(MINUTE), limits.limit(DAY), limits.limit(**refusing), limits.limit(USERS)]
    app.get("/", dependencies=[Depends(one) for one in ones])(lambda: None)
    assert [(await get(app)).status_code for _ in range(3)] == [401, 401, 429]
    assert sent(server) == [["minute", "day"]] * 3


async def test_another_dependency_divides_the_calls(server: FakeServer, limits: RateLimits) -> None:
    app = FastAPI()
    limits.install(app)

    async def user(request: Request) -> None:
        if "X-User" not in request.headers:
            raise HTTPException(401)
        request.state.user = request.headers["X-User"]

    app.get("/", dependencies=[
        Depends(limits.limit(MINUTE)), Depends(limits.limit(HOUR)), Depends(user),
        Depends(limits.limit(USERS, key=lambda request: request.state.user)),
        Depends(limits.limit(DAY)),
    ])(lambda: None)  # fmt: skip
    assert (await get(app)).status_code == 401
    assert (await get(app, x_user="a")).status_code == 200
    assert sent(server) == [["minute", "hour"], ["minute", "hour"], ["users", "day"]]


async def test_a_limit_that_a_test_overrides_takes_nothing(
    server: FakeServer, limits: RateLimits
) -> None:
    app = FastAPI()
    limits.install(app)
    minute, hour, day = (limits.limit(rule) for rule in (MINUTE, HOUR, DAY))

    async def needs_hour(decision: Annotated[Any, Depends(hour)]) -> None: ...

    depends = [Depends(one) for one in (minute, needs_hour, day)]
    app.get("/", dependencies=depends)(lambda: None)
    assert (await get(app)).status_code == 200
    assert sent(server) == [["minute", "hour"], ["day"]]
    server.calls.clear()
    app.dependency_overrides = {needs_hour: lambda: None, day: lambda: None}
    assert (await get(app)).status_code == 200
    assert sent(server) == [["minute"]]


async def test_an_outage_decides_all_limits_by_the_strictest(
    server: FakeServer, limits: RateLimits
) -> None:
    app = FastAPI(dependencies=[Depends(limits.limit(MINUTE))])
    limits.install(app)
    closed = fixed("closed", 5, "1h", on_error="deny")
    app.get("/closed", dependencies=[Depends(limits.limit(closed))])(lambda: None)
    app.get("/")(lambda: None)
    server.fail()
    assert [(await get(app, path)).status_code for path in ("/closed", "/")] == [503, 200]
    allowed = await get(stacked(limits), "/rows", x_user="a")
    assert (allowed.status_code, allowed.json()) == (200, {"day": 0, "users": 0})


@pytest.fixture
async def in_cluster(cluster: list[Server]) -> AsyncIterator[RateLimits]:
    client = redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster[0].port)
    async with AsyncLimiter(client, timeout_ms=60_000) as limiter:
        yield RateLimits(limiter)
    await client.aclose()


@pytest.mark.live
async def test_limits_of_several_slots_of_a_cluster_are_several_calls(
    in_cluster: RateLimits,
) -> None:
    app = FastAPI()
    in_cluster.install(app)
    ones = [in_cluster.limit(rule) for rule in (MINUTE, HOUR, DAY)]
    app.get("/", dependencies=[Depends(one) for one in ones])(lambda: None)
    responses = [await get(app) for _ in range(3)]
    assert [one.status_code for one in responses] == [200, 200, 429]
    assert '"hour";r=2' in responses[0].headers["ratelimit"]


def websockets(limits: RateLimits, rule: Rule = DAY) -> FastAPI:
    router = APIRouter(dependencies=[Depends(limits.limit(rule))])

    @router.websocket("/socket")
    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text("hello")
        await websocket.close()

    @router.get("/rows")
    async def rows() -> None: ...

    app = FastAPI()
    app.include_router(router)
    limits.install(app)
    return app


async def talk(app: FastAPI, path: str = "/socket", *, extended: bool = True) -> list[Any]:
    """Connects a websocket, and returns the messages of the application."""
    messages: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        messages.append(message)

    extensions: dict[str, Any] = {"websocket.http.response": {}} if extended else {}
    scope = {
        "type": "websocket", "path": path, "headers": [], "client": PEER, "query_string": b"",
        "root_path": "", "subprotocols": [], "extensions": extensions,
    }  # fmt: skip
    await app(scope, receive, send)
    return messages


@pytest.mark.parametrize("extended", [True, False])
async def test_a_limit_of_a_router_limits_its_websockets(
    server: FakeServer, limits: RateLimits, extended: bool
) -> None:
    app = websockets(limits)
    assert (await get(app, "/rows")).status_code == 200
    talked = await talk(app, extended=extended)
    assert [one["type"] for one in talked] == [
        "websocket.accept", "websocket.send", "websocket.close",
    ]  # fmt: skip
    denied = await talk(app, extended=extended)
    if extended:
        assert (denied[0]["type"], denied[0]["status"]) == ("websocket.http.response.start", 429)
        assert (b"content-type", b"application/problem+json") in denied[0]["headers"]
    else:
        assert [(one["type"], one["code"]) for one in denied] == [("websocket.close", 1008)]
    assert sent(server) == [["day"]] * 3


async def test_a_lease_of_a_router_is_held_as_long_as_its_websocket(
    server: FakeServer, limits: RateLimits
) -> None:
    app = websockets(limits, JOBS)
    for _ in range(2):
        assert (await talk(app))[0]["type"] == "websocket.accept"
        await settled()
    assert [call[0] for call in server.calls] == ["RL.LEASE", "RL.RELEASE"] * 2
