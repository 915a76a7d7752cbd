"""Responses to denied leases and admissions of Django views.

    MIDDLEWARE = [..., "redis_throttle_client.django.DeniedMiddleware"]

The limits of requests are in :mod:`.wsgi` and :mod:`.rest_framework`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse

from ._rules.decision import Denied
from ._web.http import denial

__all__ = ["DeniedMiddleware"]


class DeniedMiddleware:
    """Responds to a :class:`Denied` of a view as the middleware for WSGI does to a denial."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Returns the response of the view."""
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Returns the response to a denial, None for other errors."""
        if not isinstance(error, Denied):
            return None
        response = denial(error.decision, ("draft-11",))
        return HttpResponse(response.body, status=response.status, headers=dict(response.headers))
