"""Shared memory: what is sent arrives as it was, blocks grow and are used again, and what is still read is not overwritten."""

import gc
import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from consumers.processing.parallel.blocks import Incoming, Outgoing, Parcel
from tests.consumers.processing.parallel.parts import columns

Ends = tuple[Outgoing, Incoming]

BATCH = columns(0, 100)
NESTED = pa.record_batch({"kind": pa.array(["a", "b", "a"]).dictionary_encode(), "headers": [[{"key": "k"}], None, []]})


@pytest.fixture
def ends() -> Iterator[Ends]:
    near, far = socket.socketpair()
    outgoing = Outgoing(near)
    yield outgoing, Incoming(far)
    outgoing.forget()
    near.close()
    far.close()


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize(
    "sent",
    [BATCH, BATCH.slice(7, 5), BATCH.slice(0, 0), NESTED, pa.table(BATCH), pa.Table.from_batches([BATCH, BATCH]), pa.table({})],
    ids=["batch", "slice", "no rows", "nested", "table", "chunks", "no columns"],
)
def test_columns_arrive_as_they_were_sent(ends: Ends, sent: pa.RecordBatch | pa.Table, copy: bool) -> None:
    outgoing, incoming = ends
    outgoing.write(sent)
    outgoing.send(b"note")
    came = incoming.receive(copy)
    assert type(came.columns) is type(sent)
    assert came.columns.equals(sent, check_metadata=True)
    assert came.note == b"note"


def test_a_note_crosses_alone_and_beside_columns_that_fill_the_block(ends: Ends) -> None:
    outgoing, incoming = ends
    outgoing.send(b"alone")
    assert incoming.receive(copy=False) == Parcel(None, b"alone")
    outgoing.write(columns(0, 1000, size=1000))
    outgoing.send(b"n" * 3_000_000)
    came = incoming.receive(copy=False)
    assert came.columns.equals(columns(0, 1000, size=1000))
    assert came.note == b"n" * 3_000_000


def test_a_block_is_used_again_until_a_batch_does_not_fit(ends: Ends) -> None:
    outgoing, incoming = ends
    seen = []
    for size in (10, 10, 4000, 10, 4000, 40_000):
        outgoing.write(columns(0, 1000, size))
        outgoing.send(b"")
        assert incoming.receive(copy=True).columns.equals(columns(0, 1000, size))
        seen.append(_blocks())
    assert len(set(seen)) == 3


def test_views_say_that_a_block_is_in_use_until_the_last_is_gone(ends: Ends) -> None:
    outgoing, incoming = ends
    outgoing.write(BATCH)
    outgoing.send(b"")
    view = incoming.receive(copy=False).columns["value"].slice(3, 1)
    assert incoming.in_use
    outgoing.forget()
    outgoing.write(columns(500, 600))
    outgoing.send(b"")
    assert view[0].as_py() == b"00000003"
    del view
    incoming.receive(copy=False)
    assert not incoming.in_use


def test_a_copy_leaves_the_block_free(ends: Ends) -> None:
    outgoing, incoming = ends
    outgoing.write(BATCH)
    outgoing.send(b"")
    copied = incoming.receive(copy=True).columns
    assert not incoming.in_use
    outgoing.write(columns(500, 600))
    assert copied.equals(BATCH)


def test_the_end_of_the_other_side_is_an_error() -> None:
    near, far = socket.socketpair()
    near.close()
    with pytest.raises(EOFError):
        Incoming(far).receive(copy=False)
    with pytest.raises(BrokenPipeError):
        Outgoing(far).send(b"")
    far.close()


def test_no_descriptor_and_no_memory_stays() -> None:
    descriptors, blocks = _descriptors(), _blocks()
    near, far = socket.socketpair()
    outgoing, incoming = Outgoing(near), Incoming(far)
    for size in (10, 10_000, 10_000):
        outgoing.write(columns(0, 1000, size))
        outgoing.send(b"")
        incoming.receive(copy=False)
        outgoing.forget()
    del outgoing, incoming
    near.close()
    far.close()
    assert _descriptors() == descriptors
    assert _blocks() <= blocks  # other tests' may be there, and go


def _descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def _blocks() -> frozenset[str]:
    """The blocks that this process maps, by inode."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return frozenset(line.split()[4] for line in lines if "memfd:weir" in line)
