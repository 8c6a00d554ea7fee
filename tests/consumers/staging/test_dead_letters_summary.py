"""What is shown of dead letters: bounded, of what is not resolved, and with values only where that is allowed."""

from pathlib import Path

import pytest

from consumers.clock import ManualClock
from consumers.config import Consumer
from consumers.staging import dead_letters_summary
from consumers.staging.dead_letters_summary import OTHER, SAMPLE_BYTES, Summary, dead_letter_summary
from consumers.staging.rewrite import Rewriter
from tests.consumers.parts import DAY_MS, consumer
from tests.consumers.staging.rewriting import GOOD, WINDOW, Ingestion, again

NEXT_DAY = DAY_MS + 86_400_000
TEXT, LONG = b'{"a": "x"}', b"no json " * 100


@pytest.fixture
def parts(tmp_path: Path) -> Consumer:
    """Offsets 1 and 2 are of one reason on two days; 3 and 4 of others."""
    made = consumer(tmp_path, show_values=True)
    member = Ingestion(made, ManualClock(1000))
    member.stage(GOOD, TEXT, stamps=[DAY_MS, DAY_MS])
    member.clock.sleep(60)
    member.stage(TEXT, LONG, stamps=[NEXT_DAY, NEXT_DAY])
    member.stage(b"worse")
    return made


def test_reasons_come_with_counts_times_and_an_example(parts: Consumer) -> None:
    found = dead_letter_summary(parts)
    assert (found.unresolved, found.resolved) == (4, 0)
    top = found.reasons[0]
    assert (top.count, top.example) == (2, "0:2")
    assert top.oldest is not None and top.newest is not None
    assert (top.oldest.timestamp(), top.newest.timestamp()) == (1000, 1060)
    assert found.windows == (("2013-01-02", 2), ("2013-01-01", 2))


def test_samples_are_cut_and_show_values_only_where_the_definition_says_so(parts: Consumer, tmp_path: Path) -> None:
    shown = {sample.example: sample.value for sample in dead_letter_summary(parts).samples}
    assert shown["0:2"] == '{"a": "x"}'
    assert shown["0:3"] == "no json " * (SAMPLE_BYTES // 8) + "… (800 bytes)"
    hidden = dead_letter_summary(consumer(tmp_path)).samples
    assert [sample.value for sample in hidden] == [None] * 3


def test_what_became_a_row_is_counted_apart(parts: Consumer) -> None:
    Rewriter(parts, ManualClock(2000)).rewrite(WINDOW, again(parts, [GOOD, GOOD]))
    found = dead_letter_summary(parts)
    assert (found.unresolved, found.resolved, found.reasons[0].count) == (3, 1, 1)


def test_reasons_without_number_are_gathered(parts: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters_summary, "_KEPT_REASONS", 1)
    found = dead_letter_summary(parts)
    assert sum(reason.count for reason in found.reasons) == 4 and OTHER in {reason.reason for reason in found.reasons}


def test_no_table_is_an_empty_summary(tmp_path: Path) -> None:
    assert dead_letter_summary(consumer(tmp_path)) == Summary()
