"""Fetching jars: nothing runs when they are there, nothing half-made stays, and failures say what to do."""

from pathlib import Path

import pytest

from orchestration.local import jars
from orchestration.local.errors import LocalError
from orchestration.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "home", tmp_path / "tables", tmp_path / "cache", None)


def ivy_that(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `java` be a shell script; its last argument is the pattern to retrieve to."""
    folder.mkdir()
    (folder / "ivy-2.5.3.jar").touch()
    executable = folder / "java"
    executable.write_text(f'#!/bin/sh\nfor last do :; done\ninto=$(dirname "$last")\n{script}\n')
    executable.chmod(0o755)
    monkeypatch.setattr(jars, "spark_jars", lambda: folder)
    monkeypatch.setattr(jars, "java", lambda _settings: executable)


@pytest.mark.parametrize(
    ("jar", "artifact"),
    [
        ("commons-pool-1.6.jar", "commons-pool"),
        ("delta-spark_4.2_2.13-4.4.0.jar", "delta-spark_4.2_2.13"),
        ("guava-33.6.0-jre.jar", "guava"),
        ("netty-transport-native-epoll-4.2.13.Final-linux-x86_64.jar", "netty-transport-native-epoll"),
        ("log4j-1.2-api-2.25.4.jar", "log4j-1.2-api"),
        ("hive-shims-0.23-2.3.10.jar", "hive-shims-0.23"),
    ],
)
def test_an_artifact_is_the_name_without_its_version(jar: str, artifact: str) -> None:
    assert jars.artifact_of(Path(jar)) == artifact


def test_jars_that_spark_has_in_another_version_are_left_out(tmp_path: Path) -> None:
    ours, sparks = tmp_path / "ours", tmp_path / "sparks"
    for folder, names in (
        (ours, ["delta-storage-4.4.0.jar", "jsr305-3.0.2.jar"]),
        (sparks, ["jsr305-3.0.0.jar"]),
    ):
        folder.mkdir()
        for name in names:
            (folder / name).touch()
    jars.leave_out(ours, sparks)
    assert [jar.name for jar in ours.iterdir()] == ["delta-storage-4.4.0.jar"]


def test_nothing_is_run_when_the_jars_are_there(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ivy_that(
        f'echo run >> {tmp_path / "runs"}; touch "$into/kafka_2.13-4.3.0.jar"',
        tmp_path / "tools",
        monkeypatch,
    )
    first = jars.fetch(settings, "Kafka", jars.KAFKA)
    assert jars.fetch(settings, "Kafka", jars.KAFKA) == first == settings.cache / "jars" / "kafka_2.13-4.3.0"
    assert (tmp_path / "runs").read_text() == "run\n"


def test_a_failed_fetch_leaves_no_folder_behind(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ivy_that(
        'touch "$into/half.jar"; echo "java.net.UnknownHostException: x"; exit 1',
        tmp_path / "tools",
        monkeypatch,
    )
    with pytest.raises(LocalError, match="cannot be reached; check network"):
        jars.fetch(settings, "Kafka", jars.KAFKA)
    assert not [path for path in (settings.cache / "jars").iterdir() if path.is_dir()]


def test_what_a_killed_fetch_left_is_swept(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = settings.cache / "jars" / ".kafka_2.13-4.3.0.abcd"
    left.mkdir(parents=True)
    ivy_that('touch "$into/kafka_2.13-4.3.0.jar"', tmp_path / "tools", monkeypatch)
    jars.fetch(settings, "Kafka", jars.KAFKA)
    assert not left.exists()


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        (
            "Server access error: PKIX path building failed: SunCertPath",
            "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore",
        ),
        ("java.net.UnknownHostException: host", "check network"),
        ("java.net.ConnectException: refused", "check network"),
        ("java.io.IOException: No space left on device", "disk full"),
        ("something else", "see here.log"),
    ],
)
def test_each_failure_is_one_line_with_what_to_do(output: str, advice: str) -> None:
    said = jars.reason("Kafka", jars.KAFKA, f"first\n{output}\nlast", Path("here.log"))
    assert advice in said
    assert "\n" not in said
