"""Strategies with one fault each, for the suite to find. Each is `Honest`, or `HonestEnd`, but for one thing."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from consumers.processing.strategies.protocol import Commit, Message, MessageRejected, Strategy
from consumers.types import OffsetRange, Ranges, TopicPartition, join_ranges
from tests.contracts.strategies import Ended, Last, Middle, Opened, Room

Records = Message[pa.RecordBatch]


class Honest:
    """Keeps up to three messages and passes them on when it is polled."""

    def __init__(self, after: Strategy[pa.RecordBatch]) -> None:
        self.after = after
        self.kept: deque[Records] = deque()

    def submit(self, message: Records) -> None:
        if len(self.kept) >= 3:
            raise MessageRejected
        self.kept.append(message)

    def poll(self) -> None:
        self.after.poll()
        self.drain()

    def flush(self, timeout: float) -> bool:
        self.drain()
        return self.after.flush(timeout) and not self.kept

    def discard(self) -> None:
        self.kept.clear()
        self.after.discard()

    def close(self) -> None:
        self.kept.clear()
        self.after.close()

    def drain(self) -> None:
        try:
            while self.kept:
                self.pass_on(self.kept[0])
                self.kept.popleft()
        except MessageRejected:
            pass

    def pass_on(self, message: Records) -> None:
        self.after.submit(message)


class LosesWhatWasRefused(Honest):
    def drain(self) -> None:
        while self.kept:
            try:
                self.pass_on(self.kept.popleft())
            except MessageRejected:
                return


class PassesTwice(Honest):
    def pass_on(self, message: Records) -> None:
        self.after.submit(message)
        self.after.submit(message)


class PassesRowsTwice(Honest):
    def pass_on(self, message: Records) -> None:
        self.after.submit(message.with_payload(pa.concat_batches([message.payload, message.payload])))


class TakesAndRefuses(Honest):
    def submit(self, message: Records) -> None:
        super().submit(message)
        if len(self.kept) == 3:
            raise MessageRejected


class RefusesAfterPassingOn(Honest):
    def submit(self, message: Records) -> None:
        self.pass_on(message)
        raise MessageRejected


class NewestFirst(Honest):
    def drain(self) -> None:
        self.kept.reverse()
        super().drain()


class DropsWhatHasNoRows(Honest):
    def submit(self, message: Records) -> None:
        if message.payload.num_rows:
            super().submit(message)


class DropsRejections(Honest):
    def pass_on(self, message: Records) -> None:
        self.after.submit(message.without_rejected())


class DropsARow(Honest):
    def pass_on(self, message: Records) -> None:
        self.after.submit(message.with_payload(message.payload.slice(0, 2)))


class DropsTheSource(Honest):
    def pass_on(self, message: Records) -> None:
        self.after.submit(replace(message, source=()))


class SkipsOffsets(Honest):
    def pass_on(self, message: Records) -> None:
        ranges = {tp: OffsetRange(step.start + 1, step.end) for tp, step in message.ranges.items()}
        self.after.submit(replace(message, ranges=ranges))


class PositionsBeforeRows(Honest):
    def pass_on(self, message: Records) -> None:
        self.after.submit(replace(message, payload=message.payload.slice(0, 0)))
        self.after.submit(replace(message, ranges={}, rejected=()))


class SaysThatAllIsThrough(Honest):
    def flush(self, timeout: float) -> bool:
        self.after.flush(timeout)
        return True


class FlushesNotTheNext(Honest):
    def flush(self, timeout: float) -> bool:
        self.drain()
        return not self.kept


class PollsNotTheNext(Honest):
    def poll(self) -> None:
        self.drain()


class WaitsForAFlush(Honest):
    def poll(self) -> None:
        self.after.poll()


class RemembersAfterDiscard(Honest):
    def discard(self) -> None:
        self.after.discard()


class DiscardsNotTheNext(Honest):
    def discard(self) -> None:
        self.kept.clear()


class ClosesNotTheNext(Honest):
    def close(self) -> None:
        self.kept.clear()


class PassesOnAtTheClose(Honest):
    def close(self) -> None:
        self.drain()
        self.after.close()


class TakesWithoutEnd(Honest):
    def submit(self, message: Records) -> None:
        self.kept.append(message)


class HidesErrors(Honest):
    def drain(self) -> None:
        try:
            super().drain()
        except RuntimeError:
            self.kept.clear()
        except Exception:  # noqa: BLE001  # the fault itself
            self.kept.popleft()  # goes on with the next message, past the failed one


class PassesOnInAThread(Honest):
    def pass_on(self, message: Records) -> None:
        failed: list[BaseException] = []

        def run() -> None:
            try:
                self.after.submit(message)
            except BaseException as error:  # noqa: BLE001  # raised again below
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]


class HonestEnd:
    """Writes what it keeps, and tells, when it is polled."""

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.kept: deque[Records] = deque()
        self.written: list[tuple[int, int]] = []

    def submit(self, message: Records) -> None:
        self.kept.append(message)

    def poll(self) -> None:
        if self.kept and not self.kept[-1].more:
            self.empty()

    def flush(self, timeout: float) -> bool:
        self.poll()
        return not self.kept

    def empty(self) -> None:
        while self.kept:
            self.write(self.kept[0])
            self.commit(self.kept.popleft().ranges)

    def discard(self) -> None:
        self.kept.clear()

    def close(self) -> None:
        self.kept.clear()

    def write(self, message: Records) -> None:
        gone = {(r.partition.partition, r.offset) for r in message.rejected}
        rows = zip(message.payload["partition"].to_pylist(), message.payload["offset"].to_pylist(), strict=True)
        self.written += [row for row in rows if row not in gone]


class WritesPartsOfAWhole(HonestEnd):
    def poll(self) -> None:
        self.empty()


class TellsBeforeItTakes(HonestEnd):
    def submit(self, message: Records) -> None:
        self.commit(message.ranges)
        super().submit(message)


class TellsTwice(HonestEnd):
    def poll(self) -> None:
        if self.kept:
            self.commit(self.kept[0].ranges)
        super().poll()


class TellsOnlyAtAFlush(HonestEnd):
    def poll(self) -> None:
        pass

    def flush(self, timeout: float) -> bool:
        super().poll()
        return True


class FlushTellsNothing(HonestEnd):
    def flush(self, timeout: float) -> bool:
        return True


class WritesBeforeTheDiscard(HonestEnd):
    def submit(self, message: Records) -> None:
        self.write(message)
        self.kept.append(message.with_payload(message.payload.slice(0, 0)))


class TellsWhatWasDiscarded(HonestEnd):
    def discard(self) -> None:
        pass


class TellsOneRangeOnly(HonestEnd):
    def poll(self) -> None:
        whole: dict[TopicPartition, OffsetRange] = {}
        while self.kept:
            self.write(self.kept[0])
            whole = join_ranges(whole, self.kept.popleft().ranges)
        if whole:
            first: Ranges = dict([next(iter(whole.items()))])
            self.commit(first)


class TellsAtTheClose(HonestEnd):
    def close(self) -> None:
        self.poll()


class DropsRejectionsAtTheEnd(HonestEnd):
    def submit(self, message: Records) -> None:
        super().submit(message.without_rejected())


def middle(kind: type[Honest]) -> Middle:
    """The strategy as the suite wants it."""

    @contextmanager
    def opened(room: Room, after: Strategy[Any]) -> Opened:
        yield kind(after)

    return Middle(kind.__name__, opened)


def last(kind: type[HonestEnd]) -> Last:
    """The strategy as the suite wants it."""

    @contextmanager
    def opened(room: Room, commit: Commit) -> Iterator[Ended]:
        made = kind(commit)
        yield Ended(made, lambda: made.written)

    return Last(kind.__name__, opened, takes_rejected=kind is not DropsRejectionsAtTheEnd)
