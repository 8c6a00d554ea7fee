"""The entry of spark-submit, without Spark: what comes in through Dagster Pipes, and what goes back."""

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from dagster_pipes import PipesContext, encode_param

from spark_jobs import main
from spark_jobs.request import AuditResult, Request, Result, Source

REQUEST = Request("sums", "spark_jobs.sums.sums", "full", {"numbers": Source("/numbers", 3)}, "/sums", "/sums/attempt-1")


def submitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Any) -> list[dict[str, Any]]:
    """The messages of a process that was submitted with Pipes' arguments."""
    messages = tmp_path / "messages"
    data = {"extras": {"request": REQUEST.to_json()}, "run_id": "r", "retry_number": 0}
    context, heard = encode_param({"data": data}), encode_param({"path": str(messages)})
    monkeypatch.setattr(sys, "argv", ["main.py", "--dagster-pipes-context", context, "--dagster-pipes-messages", heard])
    monkeypatch.setattr(PipesContext, "_instance", None)
    monkeypatch.setattr(main, "SparkSession", MagicMock())
    monkeypatch.setattr(main, "run", run)
    try:
        main.main()
    finally:
        found = [json.loads(line) for line in messages.read_text().splitlines()]
    return found


def test_a_request_comes_in_and_its_result_goes_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = Result((AuditResult("rows", False, True, "0 rows"),), ("1",), "app-1", "http://ui")
    asked: list[Request] = []
    messages = submitted(monkeypatch, tmp_path, lambda spark, request: asked.append(request) or result)
    (reported,) = [message["params"]["payload"] for message in messages if message["method"] == "report_custom_message"]
    assert asked == [REQUEST]
    assert Result.from_json(reported["result"]) == result


def test_an_error_is_told_and_ends_the_application(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        submitted(monkeypatch, tmp_path, lambda spark, request: 1 // 0)
    last = json.loads((tmp_path / "messages").read_text().splitlines()[-1])
    assert last["method"] == "closed"
    assert last["params"]["exception"]["name"] == "ZeroDivisionError"
