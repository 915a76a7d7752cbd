"""Tests the throttle of Django REST framework, over HTTP and on a real server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any, ClassVar

import django
import httpx
import pytest
import redis
from django.conf import settings

from redis_throttle_client import (
    InvalidArgument,
    Limiter,
    Outcome,
    Rule,
    backoff,
    fixed,
    gcra,
    lease,
    quota,
)

from .conftest import Server, until
from .served import cut, served_wsgi

settings.configure(
    ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="x", USE_TZ=True,
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": [], "DEFAULT_PERMISSION_CLASSES": [],
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
        "UNAUTHENTICATED_USER": None,
    },
)  # fmt: skip
django.setup()

from django.core.handlers.wsgi import WSGIRequest  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.urls import path  # noqa: E402
from rest_framework.exceptions import NotFound  # noqa: E402
from rest_framework.request import Request  # noqa: E402
from rest_framework.response import Response  # noqa: E402
from rest_framework.views import APIView  # noqa: E402

from redis_throttle_client import rest_framework  # noqa: E402
from redis_throttle_client.rest_framework import RateLimitThrottle  # noqa: E402

__all__ = ["APIView", "rest_framework"]

pytestmark = pytest.mark.live
API = gcra("api", 6, 10, "60s")
DAY = fixed("day", 3, "1d")
LOGIN = backoff("login", 2, "1s", "15m", "1d", count="failures")
outcomes: list[Outcome] = []


def is_served(outcome: Outcome) -> bool:
    outcomes.append(outcome)
    return outcome.status == 200


UPLOADS = fixed("uploads", 2, "1h", count=is_served)
CLOSED = fixed("closed", 5, "1h", on_error="deny")
# Each test gives the throttles a limiter of its server.
SOME = Limiter(redis.Redis(port=1))


def plan(request: Request) -> Rule | None:
    return DAY if request.headers.get("X-Plan") == "free" else None


class ApiThrottle(RateLimitThrottle):
    limiter = SOME
    rules = API
    trusted_proxies = ("127.0.0.1",)


class UserThrottle(RateLimitThrottle):
    limiter = SOME
    rules: ClassVar = [plan, API]

    def key(self, request: Request) -> str | None:
        return request.headers["X-User"]

    def cost(self, request: Request) -> int:
        return int(request.query_params.get("cost", 1))

    def skip(self, request: Request) -> bool:
        return request.headers.get("X-User") == "root"


class PlanThrottle(RateLimitThrottle):
    limiter = SOME
    rules = plan


class LoginThrottle(RateLimitThrottle):
    limiter = SOME
    rules = LOGIN


class ClosedThrottle(RateLimitThrottle):
    limiter = SOME
    rules = CLOSED
    headers = ("x-ratelimit",)


class Home(APIView):
    throttle_classes: Sequence[type[RateLimitThrottle]] = (ApiThrottle,)

    def get(self, request: Request) -> Response:
        return Response({"left": request.META["redis_throttle_client.decision"].remaining})

    def delete(self, request: Request) -> Response:
        raise NotFound


class Me(Home):
    throttle_classes = (UserThrottle,)

    def get(self, request: Request) -> Response:
        decision = request.META["redis_throttle_client.decision"]
        return Response({"left": None if decision is None else decision.remaining})


class Two(Home):
    throttle_classes = (ApiThrottle, PlanThrottle)


class Login(APIView):
    throttle_classes = (LoginThrottle,)

    def post(self, request: Request) -> Response:
        password = str(request.data)
        if password == "raise":
            raise ZeroDivisionError
        return Response(status=200 if password == "right" else 403)


class UploadThrottle(RateLimitThrottle):
    limiter = SOME
    rules = UPLOADS


class Upload(APIView):
    throttle_classes = (UploadThrottle,)
    begun: ClassVar[list[str]] = []
    ended: ClassVar[list[str]] = []

    def dispatch(self, request: Any, *args: Any, **options: Any) -> Any:
        try:
            return super().dispatch(request, *args, **options)
        finally:
            self.ended.append(request.method)

    def post(self, request: Request) -> Response:
        self.begun.append("post")
        return Response(request.data)

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, OSError):
            return Response(status=400)
        return super().handle_exception(exc)


class Closed(Home):
    throttle_classes = (ClosedThrottle,)


urlpatterns = [
    path(name, view.as_view())
    for name, view in {
        "": Home,
        "me": Me,
        "two": Two,
        "login": Login,
        "closed": Closed,
        "upload": Upload,
    }.items()
]


@pytest.fixture(scope="module")
def site() -> Iterator[httpx.Client]:
    """Serves the application over HTTP."""
    with (
        served_wsgi(get_wsgi_application()) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        yield client


@pytest.fixture
def limiter(shared_server: Server) -> Iterator[Limiter]:
    """Gives the throttles a limiter of the server."""
    with Limiter(shared_server.client(), timeout_ms=60_000) as opened:
        use(opened)
        yield opened


def use(limiter: Limiter) -> None:
    for throttle in RateLimitThrottle.__subclasses__():
        throttle.limiter = limiter


def test_a_view_is_limited_with_headers(site: httpx.Client, limiter: Limiter) -> None:
    responses = [site.get("/") for _ in range(7)]
    assert [one.status_code for one in responses] == [200] * 6 + [429]
    assert responses[0].json() == {"left": 5}
    assert responses[0].headers["ratelimit"] == '"api";r=5;t=6'
    denied = responses[-1]
    assert denied.headers["retry-after"] == "6"
    assert denied.headers["cache-control"] == "no-store"
    assert denied.headers["ratelimit-policy"] == '"api";q=6;w=36'
    assert denied.json()["detail"].endswith("Expected available in 6 seconds.")
    # The response to an exception has the fields too.
    gone = site.delete("/", headers={"X-Forwarded-For": "192.0.2.7"})
    assert (gone.status_code, gone.headers["ratelimit"]) == (404, '"api";r=5;t=6')


def test_all_rules_of_a_throttle_are_one_call(
    site: httpx.Client, limiter: Limiter, shared_server: Server
) -> None:
    alice = {"X-User": "alice"}
    before = shared_server.calls("rl.all"), shared_server.calls("rl.gcra")
    free = [site.get("/me", headers=alice | {"X-Plan": "free"}) for _ in range(4)]
    assert [one.status_code for one in free] == [200, 200, 200, 429]
    assert free[0].headers["ratelimit"] == '"day";r=2;t=86400, "api";r=5;t=6'
    assert shared_server.calls("rl.all") == before[0] + 4
    assert site.get("/me", headers=alice).json() == {"left": 2}
    assert site.get("/me", headers={"X-User": "root"}).json() == {"left": None}
    assert shared_server.calls("rl.gcra") == before[1] + 1
    missing = site.get("/me")
    assert (missing.status_code, list(missing.json())) == (400, ["detail"])


def test_a_cost_is_400_if_invalid_413_above_the_limit_and_503_without_the_server(
    site: httpx.Client, limiter: Limiter
) -> None:
    assert site.get("/me?cost=-1", headers={"X-User": "alice"}).status_code == 400
    dear = site.get("/me?cost=7", headers={"X-User": "alice"})
    assert (dear.status_code, "retry-after" in dear.headers) == (413, False)
    with Limiter(redis.Redis(port=1)) as unreachable:
        use(unreachable)
        closed, opened = site.get("/closed"), site.get("/")
    assert (closed.status_code, closed.headers["retry-after"]) == (503, "1")
    assert (opened.status_code, "ratelimit" in opened.headers) == (200, False)
    use(limiter)
    assert site.get("/closed").headers["x-ratelimit-remaining"] == "4"


def test_several_throttles_of_a_view_add_their_fields(
    site: httpx.Client, limiter: Limiter
) -> None:  # fmt: skip
    response = site.get("/two", headers={"X-Plan": "free"})
    assert response.headers["ratelimit"] == '"api";r=5;t=6, "day";r=2;t=86400'


def test_a_login_limiter_counts_failed_logins(site: httpx.Client, limiter: Limiter) -> None:
    def log_in(password: str) -> int:
        return site.post("/login", json=password).status_code

    assert [log_in("right") for _ in range(4)] == [200] * 4
    # Django responds to an error of the view with 500.
    assert log_in("raise") == 500
    assert [log_in("wrong") for _ in range(2)] == [403, 429]


@pytest.mark.parametrize("resets", [True, False])
def test_a_request_whose_body_is_cut_counts(
    site: httpx.Client, limiter: Limiter, resets: bool
) -> None:  # fmt: skip
    port, begun, ended = site.base_url.port or 0, Upload.begun, Upload.ended
    for each in (outcomes, begun, ended):
        each.clear()
    for _ in range(2):
        response = cut(port, begun, path="/upload", resets=resets)
        assert resets or b" 400 " in response.partition(b"\r\n")[0]
    until(lambda: len(ended) == 2)
    assert outcomes == []
    assert site.post("/upload", json=[]).status_code == 429


def test_a_cut_body_that_was_read_before_the_throttle_is_known() -> None:
    for parts, is_cut in ((b"[1", True), (b"[1, 2, 3]", False)):
        environ = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": "9", "wsgi.input": BytesIO(parts)}
        inner = WSGIRequest(environ)
        assert inner.body == parts
        assert rest_framework._watched_body(Request(inner)).is_cut is is_cut


def test_a_complete_body_is_no_cut(site: httpx.Client, limiter: Limiter) -> None:
    outcomes.clear()
    bad: Any = {"content": b"[1", "headers": {"Content-Type": "application/json"}}
    assert [site.post("/upload", **bad).status_code for _ in range(4)] == [400] * 4
    assert [one.status for one in outcomes] == [400] * 4


def test_invalid_classes_are_refused_when_they_are_created() -> None:
    async def key(self: Any, request: Request) -> str:
        return "a"

    local = Limiter(redis.Redis(port=1), on_error="local")
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("limiter", {"rules": API}),
        ("rules", {"limiter": SOME, "rules": []}),
        ("rules", {"limiter": SOME, "rules": lease("jobs", 1, "60s")}),
        ("key", {"limiter": SOME, "rules": API, "key": key}),
        ("headers", {"limiter": SOME, "rules": API, "headers": ("x",)}),
        ("trusted_proxies", {"limiter": SOME, "rules": API, "trusted_proxies": ("x",)}),
        ("key", {"limiter": SOME, "rules": API, "key": "X-User"}),
        ("key", {"limiter": SOME, "rules": API, "key": lambda request: "a"}),
        ("skip", {"limiter": SOME, "rules": API, "skip": True}),
        ("tag", {"limiter": SOME, "rules": API, "tag": "acme"}),
        ("cost", {"limiter": SOME, "rules": API, "cost": "1"}),
        ("on_error", {"limiter": local, "rules": LOGIN}),
        ("on_error", {"limiter": local, "rules": API, "anonymous": quota("month", 5, "month")}),
    ]
    for name, members in wrong:
        with pytest.raises(InvalidArgument, match=f"^{name}: "):
            type("Wrong", (RateLimitThrottle,), members)
    with pytest.raises(InvalidArgument, match=r"^rules: "):
        RateLimitThrottle()
    local.close()
