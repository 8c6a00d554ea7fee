"""Limits on invalid records, as the staged table's writer keeps them."""

from pathlib import Path

import pytest

from consumers.clock import SystemClock
from consumers.errors import InvalidLimit
from consumers.processing.context import Context, Surroundings
from consumers.processing.incarnation import Incarnation
from consumers.processing.starts import Start
from consumers.processing.strategies.stage.owner import Owner
from consumers.processing.strategies.stage.strategy import Stage
from consumers.staging.positions import committed_positions
from tests.consumers.parts import TP, consumer, message, offsets

GOOD, BAD = b'{"a":1}', b"bad"


def test_a_run_across_commits_stops_before_anything_of_the_batch_is_written(tmp_path: Path) -> None:
    parts = consumer(tmp_path, invalid_records={"max_consecutive": 3}, batch={"max_latency_seconds": 60})
    owner = Owner(parts, "m", SystemClock())
    owner.acquire(owner.positions([TP]), {TP: Start(0)}, "id")
    context = Context(lambda ranges: None, Surroundings())
    stage = Stage(parts, owner, context, Incarnation(lambda: "id", SystemClock()), lambda partitions: {}, lambda commit: None)
    try:
        stage.submit(message([GOOD, BAD, BAD]))
        assert stage.flush(10)
        stage.submit(message([BAD, BAD, GOOD], 3))
        with pytest.raises(InvalidLimit, match="t/0: 4 invalid records in a row up to offset 6"):
            stage.flush(10)
    finally:
        stage.close()
    assert committed_positions(parts.staged, "c", "t", 1) == {TP: 3}
    assert sorted(offset for _, _, offset in offsets(parts.dead_letters)) == [1, 2]
