from pathlib import Path

import pytest

from orchestration.proposal import connect
from orchestration.settings import Settings


def test_where_no_cluster_answers_its_address_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "answers", lambda servers, options: False)
    made, why_not = connect.reader("t", Settings(tmp_path, tmp_path, tmp_path, "broker:9092"))
    assert made is None and "no Kafka answers at broker:9092" in why_not


def test_without_any_cluster_it_is_told_how_to_start_one(tmp_path: Path) -> None:
    made, why_not = connect.reader("t", Settings(tmp_path, tmp_path, tmp_path, None))
    assert made is None and "weir kafka up" in why_not


def test_the_cluster_is_asked_with_the_options_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(connect, "answers", lambda servers, options: bool(asked.append((servers, options))))
    login = {"security.protocol": "sasl_ssl"}
    connect.reader("t", Settings(tmp_path, tmp_path, tmp_path, "broker:9092", kafka=login))
    assert asked == [("broker:9092", login)]
