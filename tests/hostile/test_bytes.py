"""Records of every hostile kind: the process lives, each is one row or one dead letter with its exact bytes, memory is bounded.

`WEIR_FUZZ=100000` sends so many instead of a sample, and larger giants; `WEIR_FUZZ_SEED` makes others than usual.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumers.brokers.records import UNREADABLE
from consumers.config import Column
from consumers.formats import RecordDecoder
from tests.consumers.parts import records
from tests.hostile import corpus

COUNT = int(os.environ.get("WEIR_FUZZ", "3000"))
SEED = int(os.environ.get("WEIR_FUZZ_SEED", "7"))
LONGEST_REASON = 300


def flood(folder: Path, count: str, seed: int) -> dict[str, Any]:
    """What `tests.hostile.flood` tells; a process that died is told with its end."""
    command = [sys.executable, "-m", "tests.hostile.flood", str(folder), count, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}: it ended with {done.returncode}\n{done.stderr[-3000:]}"
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.timeout(3600)
def test_a_flood_of_hostile_records_is_accounted_for_record_by_record(tmp_path: Path) -> None:
    told = flood(tmp_path, str(COUNT), SEED)
    assert told["records"] == COUNT == told["rows"] + told["dead_letters"]
    assert min(told["rows"], told["dead_letters"]) > COUNT // 10, "the corpus has become one-sided"
    assert told["longest_reason"] <= LONGEST_REASON, "a reason holds what a record says"
    assert told["at_most"] - told["after_first"] < 500, f"memory grows with the number of records: {told}"


def test_no_single_record_ends_the_process_or_fills_its_memory(tmp_path: Path) -> None:
    told = flood(tmp_path, "giants", SEED)
    assert told["records"] == len(corpus.giants()) == told["rows"] + told["dead_letters"]
    assert told["longest_reason"] <= LONGEST_REASON
    sent = sum(map(len, corpus.giants().values())) // 2**20
    assert told["at_most"] - told["at_start"] < 12 * sent, f"{sent} MiB were sent: {told}"


@pytest.mark.parametrize("kind", ["long", "double", "decimal(5,2)", "timestamp", "date"])
def test_a_reason_never_cites_the_value(kind: str) -> None:
    reader = RecordDecoder("json", {"a": Column(type=kind), "k": Column(type=kind, key=True)})
    for text in (
        "7" * 5_000,
        '"%s"' % ("7" * 5_000),
        "7777777.7777777",
        '"2013-07-07T07:07:07.7777777Z"',
        '"2013-07-07t07:07:07z"',
    ):
        [reject] = reader.decode(records([b'{"a":%s}' % text.encode()])).rejects
        assert "77" not in reject.reason and "07-07" not in reject.reason and len(reject.reason) <= LONGEST_REASON


READER = RecordDecoder(
    "json",
    {
        "a": Column(type="long", nullable=False),
        "s": Column(type="string"),
        "d": Column(type="decimal(9,2)"),
        "k": Column(type="timestamp", key=True),
        "h": Column(type="boolean", header="h"),
    },
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "s", "d", "x", ""]), inner, max_size=4),
    max_leaves=6,
)
VALUE = (
    st.none()
    | st.binary(max_size=20)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.sampled_from([value for value in corpus.records(300, 1) if value is None or len(value) < 200])
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(VALUE, max_size=6))
def test_every_record_is_a_row_or_a_reject_and_says_the_same_alone(values: list[bytes | None]) -> None:
    told = [[{"key": "h", "value": value}] for value in values]
    given_ = records(values, headers=told)
    together = READER.decode(given_)
    fates = {**dict.fromkeys(together.indices.to_pylist(), True), **{reject.index: False for reject in together.rejects}}
    assert sorted(fates) == list(range(len(values))) and len(together.indices) + len(together.rejects) == len(values)
    for index in range(len(values)):
        alone = READER.decode(given_.slice(index, 1))
        assert len(alone.indices) == fates[index]
        if fates[index]:
            assert alone.rows.to_pylist() == together.rows.filter(pa.array(together.indices.to_numpy() == index)).to_pylist()


def test_header_names_that_are_no_text_neither_end_the_process_nor_hide_the_other_headers() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.hostile.wire"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    plain, mixed, none, odd = json.loads(done.stdout)
    assert plain == [["plain", "31"]]
    assert mixed == [["first", "30"], [UNREADABLE, "7631"], ["good", None], [UNREADABLE, "7633"], [UNREADABLE, None]]
    assert (none, odd) == ([], [["", "ff"], [UNREADABLE, ""]])
