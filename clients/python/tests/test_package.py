"""Tests the contents of the package: its code, its marker for types, its licences."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import redis_throttle_client as rtc

from .conftest import ROOT
from .test_rest_framework import rest_framework  # noqa: F401 - Django needs its settings first

HERE = ROOT / "clients/python"
LICENCES = ["LICENSE", "LICENSE-APACHE", "LICENSE-MIT"]
PACKAGE = Path(rtc.__file__).parent
MODULES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))
FILES = [
    *MODULES, "_wire/redis_throttle.lua", "_wire/redis_throttle_script.lua", "py.typed",
]  # fmt: skip


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(directory)]
    subprocess.run(command, cwd=HERE, check=True, capture_output=True)
    return directory


def test_the_wheel_has_the_code_the_type_marker_and_the_licences(packed: Path) -> None:
    with zipfile.ZipFile(next(packed.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        metadata = wheel.read(next(name for name in names if name.endswith("METADATA"))).decode()
    root = "redis_throttle_client/"
    code = [name.removeprefix(root) for name in names if name.startswith(root)]
    assert sorted(code) == sorted(FILES)
    found = [name for name in names if "/licenses/" in name]
    assert sorted(Path(name).name for name in found) == LICENCES
    assert "License-Expression: MIT OR Apache-2.0" in metadata
    assert "Requires-Dist" not in "\n".join(
        line for line in metadata.splitlines() if "extra ==" not in line
    )


def test_the_source_distribution_builds_without_the_repository(packed: Path) -> None:
    with tarfile.open(next(packed.glob("*.tar.gz"))) as source:
        names = {name.split("/", 1)[1] for name in source.getnames() if "/" in name}
        assert all(member.isfile() for member in source if member.name.endswith(".lua"))
    assert {"pyproject.toml", "README.md", *LICENCES} <= names
    assert {f"src/redis_throttle_client/{name}" for name in FILES} <= names
    assert not [name for name in names if name.startswith((".venv", ".mypy", ".hypothesis"))]


@pytest.mark.parametrize("name", LICENCES)
def test_the_licences_match_those_of_the_project(name: str) -> None:
    assert (HERE / name).read_bytes() == (ROOT / name).read_bytes()


def test_every_exported_name_exists_and_is_sorted() -> None:
    assert sorted(rtc.__all__) == list(rtc.__all__)
    assert all(hasattr(rtc, name) for name in rtc.__all__)


def own_names() -> set[str]:
    """Returns the names that the modules of the package define."""
    names = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                # A type variable belongs to the signatures that use it.
                is_variable = ast.unparse(node.value).startswith("TypeVar(")
                names |= set() if is_variable else {node.targets[0].id}
    return names - {"Steps"}


def members_of(thing: object) -> list[object]:
    """Returns a class with its members and those of its bases, or a function alone."""
    if not inspect.isclass(thing):
        return [thing]
    own = [base for base in thing.__mro__ if base.__module__.startswith(rtc.__name__)]
    return [*own, *(member for base in own for member in vars(base).values())]


PUBLIC_MODULES = [name[:-3] for name in MODULES if not name.startswith("_")]


@pytest.mark.parametrize("module_name", ["", *PUBLIC_MODULES])
def test_the_types_of_public_signatures_are_public(module_name: str) -> None:
    module: ModuleType = importlib.import_module(f"{rtc.__name__}.{module_name}".rstrip("."))
    # A framework may have a class of the same name.
    theirs = {
        name
        for name, one in vars(module).items()
        if inspect.isclass(one) and not one.__module__.startswith(rtc.__name__)
    }
    public, own = {*rtc.__all__, *module.__all__}, own_names() - theirs
    for name in module.__all__:
        for member in members_of(getattr(module, name)):
            member = getattr(member, "fget", member)
            title = getattr(member, "__name__", "_")
            is_private = title.startswith("_") and not title.endswith("__")
            is_built = any(word in name for word in ("Lease", "Admission", "Reservation"))
            if is_private or (title == "__init__" and is_built):
                # A limiter builds the leases, the admissions and their contexts.
                continue
            used = set(re.findall(r"[A-Za-z_]\w*", str(getattr(member, "__annotations__", ""))))
            assert not used & own - public, f"{name}: {member}"


def test_frameworks_and_drivers_are_imported_only_when_used() -> None:
    code = "import sys, redis_throttle_client.asgi, redis_throttle_client.wsgi; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    names = {name.partition(".")[0] for name in found.stdout.split()}
    others = {"fastapi", "starlette", "django", "rest_framework", "limits", "redis", "valkey"}
    assert names & others == set()
