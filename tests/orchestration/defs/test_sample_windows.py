"""The sample's records lie within the windows that its YAML files name: what is outside is never computed."""

from datetime import date
from pathlib import Path

import pytest
import yaml

from orchestration.catalog import consumers
from orchestration.samples.records import sample
from orchestration.settings import Settings

TIMES = {"flights": "time_hour", "weather": "time_hour", "transactions": "booked_at"}


@pytest.fixture(scope="module")
def days() -> dict[str, tuple[date, date]]:
    """The first and the last day of each sample topic."""
    found = {}
    for topic, column in TIMES.items():
        times = sample(topic).frame(2013)[column]
        found[topic] = (times.min().date(), times.max().date())
    return found


@pytest.mark.parametrize("name", TIMES)
def test_a_consumer_has_a_window_for_every_record_of_its_sample(name: str, days: dict[str, tuple[date, date]]) -> None:
    window = consumers(Settings.load())[name].config.window
    first, last = days[name]
    assert window.first is not None and window.first <= str(first)
    assert window.last is None or str(window.last) >= str(last)


JOBS = sorted((Settings.load().project / "orchestration" / "defs" / "jobs").glob("*/defs.yaml"))


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.parent.name)
def test_a_job_has_a_window_for_every_record_of_its_inputs(path: Path, days: dict[str, tuple[date, date]]) -> None:
    job = yaml.safe_load(path.read_text())["attributes"]
    topics = [each["consumer"] for each in job["inputs"].values() if each.get("consumer") in days]
    assert topics
    for topic in topics if "first" in job else ():
        assert job["first"] <= str(days[topic][0]) and job["last"] >= str(days[topic][1])
