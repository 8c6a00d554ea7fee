"""The guard finds callers that do not keep to the protocol; what it finds in strategies is in tests/contracts."""

import threading

import pytest

from consumers.processing.strategies.commit_positions import IMMEDIATELY, CommitPositions
from consumers.processing.strategies.guard import Guard, ProtocolBroken, guard, guard_last
from consumers.processing.strategies.protocol import Commit, Message
from consumers.processing.strategies.run_task import RunTask
from consumers.types import OffsetRange, Ranges
from tests.consumers.parts import TP, message
from tests.contracts.driver import Next


@pytest.fixture
def guarded() -> Guard[object]:
    return guard(lambda after: RunTask(lambda payload: payload, after), Next())


def test_ranges_that_do_not_join_are_found(guarded: Guard[object]) -> None:
    guarded.submit(message([b"x"] * 2))
    with pytest.raises(ProtocolBroken, match=r"\(start=3, end=4\) was submitted after offset 2"):
        guarded.submit(message([b"x"], first=3))


@pytest.mark.parametrize("change", ["flush", "discard"])
def test_a_partition_may_go_on_elsewhere_once_nothing_of_it_is_left(guarded: Guard[object], change: str) -> None:
    guarded.submit(message([b"x"] * 2))
    if change == "flush":
        assert guarded.flush(0)
    else:
        guarded.discard()
    guarded.submit(message([b"x"], first=7))


@pytest.mark.parametrize("call", ["submit", "poll", "flush"])
def test_calls_after_the_close_are_found(guarded: Guard[object], call: str) -> None:
    guarded.close()
    guarded.close()
    arguments = {"submit": (message([b"x"]),), "flush": (0,)}.get(call, ())
    with pytest.raises(ProtocolBroken, match=f"{call} after close"):
        getattr(guarded, call)(*arguments)


def test_a_call_from_a_second_thread_is_found(guarded: Guard[object]) -> None:
    guarded.poll()
    found: list[BaseException] = []

    def poll() -> None:
        try:
            guarded.poll()
        except ProtocolBroken as error:
            found.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    thread.join()
    assert found


def test_a_commit_of_what_was_never_taken_is_found() -> None:
    def build(commit: Commit) -> CommitPositions[object]:
        return CommitPositions(lambda ranges: commit({TP: OffsetRange(0, 100)}), IMMEDIATELY)

    commits: list[Ranges] = []
    with pytest.raises(ProtocolBroken, match="only what is before 2 was taken"):
        guard_last(build, commits.append).submit(Message(None, {TP: OffsetRange(0, 2)}))
    assert not commits
