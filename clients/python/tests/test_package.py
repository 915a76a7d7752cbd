"""Tests the contents of the package: its code, its marker for types, its licences."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import redis_throttle_client

from .conftest import ROOT

HERE = ROOT / "clients/python"
LICENCES = ["LICENSE", "LICENSE-APACHE", "LICENSE-MIT"]
LIBRARY = ["redis_throttle.lua", "redis_throttle_script.lua"]
MODULES = sorted(path.name for path in Path(redis_throttle_client.__file__).parent.glob("*.py"))


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
    code = [name for name in names if name.startswith("redis_throttle_client/")]
    assert sorted(Path(name).name for name in code) == sorted([*MODULES, *LIBRARY, "py.typed"])
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
    assert {
        f"src/redis_throttle_client/{name}" for name in [*MODULES, *LIBRARY, "py.typed"]
    } <= names
    assert not [name for name in names if name.startswith((".venv", ".mypy", ".hypothesis"))]


@pytest.mark.parametrize("name", LICENCES)
def test_the_licences_match_those_of_the_project(name: str) -> None:
    assert (HERE / name).read_bytes() == (ROOT / name).read_bytes()
