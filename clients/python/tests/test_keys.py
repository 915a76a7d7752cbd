"""Tests subjects that are numbers, and values that are no subjects."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import pytest

from redis_throttle_client import InvalidArgument, fixed, gcra, lease
from redis_throttle_client._rules.durations import duration_us
from redis_throttle_client._web import request
from redis_throttle_client._web.counting import Once
from redis_throttle_client.asgi import Request
from redis_throttle_client.wsgi import RateLimitMiddleware as WsgiMiddleware

from .fakes import Granting
from .test_middleware import app, get, wsgi_app, wsgi_get

API = gcra("api", 6, 10, "60s")
DAY = fixed("day", 100, "1d")
JOBS = lease("jobs", 1, "60s")
MOST = 2**53 - 1
# Values that JSON has, and some of a program's own.
NO_SUBJECTS = [
    "", [], ["a"], {}, {"a": 1}, True, False, None, 1.0, 0.5, -1, MOST + 1, "\ud800", "a\udfff",
    "x" * 200 + "\udc00", b"42", uuid.UUID(int=1), Decimal(1), ("a",),
]  # fmt: skip
Account = IntEnum("Account", ["FIRST"])


def test_a_number_and_its_digits_are_one_subject() -> None:
    server = Granting()
    hashes: list[str] = []
    limiter = server.limiter(on_decision=lambda event: hashes.append(event.key_hash))
    for number in (0, 42, MOST, Account.FIRST):
        text = str(int(number))
        for subject in (number, text):
            limiter.check(API, subject)
            limiter.peek(API, subject)
            limiter.refund(API, subject)
            limiter.check_all(API.of(subject), DAY.of(subject))
            limiter.forget(API, subject)
            limiter.block(API, subject, "1s")
            limiter.forget(API, subject)
            with limiter.lease(JOBS, subject, "job"):
                pass
            with limiter.admit(DAY.of(subject)) as admitted:
                admitted.settle(DAY.of(number), 2)
        assert len({call[1] for call in server.calls if call[1].startswith("rl:api:")}) == 1
        assert server.calls[-1][1] == f"rl:day:{text}"
        assert len(set(hashes)) == 1
        server.calls.clear()
        hashes.clear()


@pytest.mark.parametrize("subject", NO_SUBJECTS, ids=repr)
def test_what_is_no_subject_is_an_invalid_argument(subject: Any) -> None:
    server = Granting()
    limiter = server.limiter()
    calls = [
        lambda: limiter.check(API, subject), lambda: limiter.check_all(API.of(subject)),
        lambda: limiter.forget(API, subject), lambda: limiter.block(API, subject, "1s"),
        lambda: limiter.lease(JOBS, subject), lambda: limiter.reserve(DAY, subject, 1),
        lambda: limiter.wait(API, subject, 10), lambda: limiter.charge(API, subject),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(InvalidArgument, match=r"^subject: "):
            call()
    if subject is not None:
        with pytest.raises(InvalidArgument, match=r"^tag: "):
            limiter.check(API, "42", tag=subject)
    assert server.calls == []


def from_body(request: Request) -> Any:
    return json.loads(request.header("x-body") or "null")


@pytest.mark.anyio
@pytest.mark.parametrize("option", ["key", "tag"])
@pytest.mark.parametrize("value", ["[]", '["a"]', "{}", "true", "1.5", "-1", r'"\ud800"'])
async def test_a_body_without_a_subject_gets_400(
    option: str, value: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(request, "_warned", Once())
    server = Granting()
    options: dict[str, Any] = {option: from_body}
    over_asgi = app(server, DAY, **options)
    over_wsgi = WsgiMiddleware(wsgi_app, limiter=server.limiter(), rules=DAY, **options)
    for _ in range(2):
        assert (await get(over_asgi, x_body=value)).status_code == 400
        assert wsgi_get(over_wsgi, HTTP_X_BODY=value)[0] == "400 Bad Request"
    assert server.calls == []
    # The application learns of it, but a client cannot fill the log.
    kind = type(json.loads(value)).__name__
    assert [record.getMessage() for record in caplog.records if " function " in record.msg] == [
        f"the {option} function tests.test_keys.from_body returned a {kind}, "
        "which is no subject: 400"
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("value", ["-1", "1.5", "1e3", "1000000000001", "true", "null", '"2"'])
async def test_a_cost_of_a_body_that_no_call_can_have_gets_400(
    value: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(request, "_warned", Once())
    server = Granting()
    over_asgi = app(server, DAY, cost=from_body)
    over_wsgi = WsgiMiddleware(wsgi_app, limiter=server.limiter(), rules=DAY, cost=from_body)
    for _ in range(2):
        assert (await get(over_asgi, x_body=value)).status_code == 400
        assert wsgi_get(over_wsgi, HTTP_X_BODY=value)[0] == "400 Bad Request"
    assert server.calls == []
    logged = [record.getMessage() for record in caplog.records if " function " in record.msg]
    assert len(logged) == 1
    assert "the cost function tests.test_keys.from_body returned no cost" in logged[0]
    # The rule of a route may take none.
    routed = app(server, lambda request: JOBS, cost=from_body)
    assert (await get(routed, x_body=value)).status_code == 200


@pytest.mark.anyio
async def test_a_number_in_a_body_is_a_subject_also_zero() -> None:
    server = Granting()
    over_asgi = app(server, DAY, key=from_body, tag=from_body)
    over_wsgi = WsgiMiddleware(wsgi_app, limiter=server.limiter(), rules=DAY, key=from_body)
    assert (await get(over_asgi, x_body="0")).status_code == 200
    assert wsgi_get(over_wsgi, HTTP_X_BODY="0")[0] == "200 OK"
    assert [call[1] for call in server.calls] == ["rl:{0}:day:0", "rl:day:0"]


@pytest.mark.parametrize(
    "value", ["1" * 5000, Decimal("1.5"), Fraction(3, 2), True, float("nan"), float("inf"), b"1s"]
)
def test_what_is_no_duration_is_an_invalid_argument(value: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^period: "):
        duration_us(value, "period")
