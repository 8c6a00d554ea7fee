"""Arrow data in memory that two processes share. Knows no strategies and no user code.

A block has no name (memfd): nothing can be left behind in /dev/shm, and the size of that (64 MB in most containers) is no limit.
The kernel frees a block with the last process that maps it. Its descriptor crosses once, over the Unix socket that also tells the
lengths of what lies in it. Rows are never pickled and never pass the socket.
"""

import mmap
import os
import socket
import struct
import sys
import tempfile
import weakref
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

Columns: TypeAlias = pa.RecordBatch | pa.Table

_FRAME = struct.Struct("=QQQ?")  # bytes of the block, of the Arrow stream, of the note; whether the stream is a table
_SMALLEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Parcel:
    """What crossed: columns, if any, and a note (bytes)."""

    columns: Columns | None
    note: bytes


class Outgoing:
    """The sending side of one direction: `write` columns, if any, then `send` a note.

    Its block is used again for every parcel, so the one before must have been dealt with; a larger one replaces it when needed.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._memory: mmap.mmap | None = None
        self._unknown: int | None = None  # descriptor of a block that the other side has not seen
        self._size, self._is_table = 0, False

    def write(self, columns: Columns) -> None:
        """Put columns into the block."""
        size = _stream_size(columns)
        _write(columns, pa.FixedSizeBufferWriter(pa.py_buffer(self._room(size))))
        self._size, self._is_table = size, isinstance(columns, pa.Table)

    def send(self, note: bytes) -> None:
        """Hand over what was written, and a note. Raises OSError when the other side is gone."""
        size, self._size = self._size, 0
        end = size + len(note)
        memory = self._room(end, keep=size)
        memory[size:end] = note
        frame = _FRAME.pack(len(memory), size, len(note), self._is_table)
        if self._unknown is None:
            self._connection.sendall(frame)
        else:
            socket.send_fds(self._connection, [frame], [self._unknown])
            self._drop_descriptor()

    def forget(self) -> None:
        """Take a new block for the next parcel, because somebody still reads this one."""
        self._drop_descriptor()
        self._memory = None
        self._size = 0

    def _room(self, needed: int, keep: int = 0) -> mmap.mmap:
        """A block that holds so many bytes; the first `keep` stay."""
        if self._memory is not None and len(self._memory) >= needed:
            return self._memory
        before = self._memory
        self.forget()
        size = max(_SMALLEST, 1 << (needed - 1).bit_length())
        self._unknown = _anonymous(size)
        self._memory = mmap.mmap(self._unknown, size)
        if before is not None and keep:
            self._memory[:keep] = before[:keep]
        return self._memory

    def _drop_descriptor(self) -> None:
        if self._unknown is not None:
            os.close(self._unknown)
            self._unknown = None


class Incoming:
    """The receiving side of one direction."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._memory: mmap.mmap | None = None
        self._seen: weakref.ref[memoryview] | None = None

    @property
    def in_use(self) -> bool:
        """Whether columns of the last parcel, or slices of them, are still alive: then its block must not be written to."""
        return self._seen is not None and self._seen() is not None

    def receive(self, copy: bool) -> Parcel:
        """The next parcel; waits for it. Its columns are views of the block, or a copy that nothing will write to.

        Raises EOFError or OSError when the other side is gone.
        """
        flags = socket.MSG_WAITALL | getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        frame, descriptors, _, _ = socket.recv_fds(self._connection, _FRAME.size, 1, flags)
        if len(frame) < _FRAME.size:
            raise EOFError
        capacity, size, noted, is_table = _FRAME.unpack(frame)
        for descriptor in descriptors:
            self._memory = mmap.mmap(descriptor, capacity)
            os.close(descriptor)
        assert self._memory is not None
        note = self._memory[size : size + noted]
        return Parcel(self._columns(self._memory, size, is_table, copy) if size else None, note)

    def _columns(self, memory: mmap.mmap, size: int, is_table: bool, copy: bool) -> Columns:
        view = memoryview(memory)[:size]
        self._seen = weakref.ref(view)
        stream = pa.ipc.open_stream(_copied(view) if copy else pa.py_buffer(view))
        return stream.read_all() if is_table else stream.read_next_batch()


def _anonymous(size: int) -> int:
    """A descriptor of fresh memory without a name."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("weir")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _stream_size(columns: Columns) -> int:
    counted = pa.MockOutputStream()
    _write(columns, counted)
    return int(counted.size())


def _write(columns: Columns, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, columns.schema) as stream:
        stream.write(columns)


def _copied(view: memoryview) -> pa.Buffer:
    """The bytes in memory of our own, copied without holding the interpreter."""
    mine = pa.allocate_buffer(len(view))
    pa.FixedSizeBufferWriter(mine).write(view)
    return mine
