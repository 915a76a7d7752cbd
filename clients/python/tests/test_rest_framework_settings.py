"""Tests throttles that are named in the settings of a Django project, in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = """
SECRET_KEY, ROOT_URLCONF, ALLOWED_HOSTS = "x", "project.urls", ["*"]
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [], "UNAUTHENTICATED_USER": None,
    "DEFAULT_THROTTLE_CLASSES": ["project.throttles.UserThrottle", "project.throttles.Scoped"],
    "DEFAULT_THROTTLE_RATES": {"user": "2/min", "uploads": "1/min"},
}
"""
THROTTLES = """
from redis_throttle_client.rest_framework import RateLimitThrottle, ScopedRateLimitThrottle
from redis_throttle_client.testing import FakeServer

class UserThrottle(RateLimitThrottle):
    limiter = FakeServer().limiter()
    scope = "user"

class Scoped(ScopedRateLimitThrottle):
    limiter = UserThrottle.limiter
"""
URLS = """
from django.urls import path
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.views import APIView

class Uploads(APIView):
    throttle_scope = "uploads"

    def get(self, request):
        return Response()

urlpatterns = [path("", api_view()(lambda request: Response())), path("uploads", Uploads.as_view())]
"""
REQUESTS = """
import django
django.setup()
from django.test import Client
print([Client().get(path).status_code for path in ("/uploads", "/uploads", "/", "/")])
"""


@pytest.mark.parametrize(
    ("command", "printed"),
    [(["-m", "django", "check"], "no issues"), (["-c", REQUESTS], "[200, 429, 429, 429]"),
     (["-c", "import project.throttles"], "")],
)  # fmt: skip
def test_default_throttle_classes_of_the_settings(
    tmp_path: Path, command: list[str], printed: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name, text in {"settings": SETTINGS, "throttles": THROTTLES, "urls": URLS}.items():
        (project / f"{name}.py").write_text(text)
    environ = os.environ | {
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
    }
    run = subprocess.run(
        [sys.executable, *command], env=environ, cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert printed in run.stdout
