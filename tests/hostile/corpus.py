"""Records that somebody hostile, or a broken producer, might send. The same seed makes the same ones."""

import gzip
import json
import lzma
import os
import random
import zlib
from collections.abc import Callable, Iterator

NESTED = 1_000_000
LARGE = (64 if int(os.environ.get("WEIR_FUZZ", "0")) >= 100_000 else 16) * 1024 * 1024

_GOOD = (
    b'{"a":1,"s":"x"}',
    b'{"a":-2,"s":null,"d":"1.25","b":true}',
    b'{"s":"\xc3\xa9\xf0\x9f\x98\x80","f":1e5,"x":[1,{"a":3}],"o":{"i":[7]}}',
    b' {"t":"2013-01-01 00:00:00.5+01:00","day":"2016-02-29"}\r\n',
    b"{}",
)
_UTF8 = (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x28\xa1", b"\xef\xbb\xbf", b"\x80")
_SURROGATES = (rb"\ud800", rb"\udc00", rb"\udc00\ud800", rb"\ud800\ud800", rb"\ud83d\u0041", rb"\uD8", rb"\uzzzz")
_NUMBERS = (
    *(
        b"NaN",
        b"-NaN",
        b"Infinity",
        b"-Infinity",
        b"Inf",
        b"1e400",
        b"-1e-400",
        b"1e2147483648",
        b"1e-2147483648",
        b"0x10",
        b"01",
    ),
    *(
        b"1" * 5_000,
        b"-" + b"9" * 5_000,
        b"0." + b"1" * 5_000,
        b"1e" + b"9" * 5_000,
        b"9223372036854775808",
        b"--1",
        b"1.",
        b".5",
    ),
)
_TIMES = (b'"0000-01-01"', b'"9999-12-31T23:59:59-23:00"', b'"2013-02-30"', b'"%s"' % (b"1" * 9_000), b'"1970-01-01T00:00:00"')
_MAGIC = (
    b"\0\0\0\0\1",
    b"Obj\1",
    b"PAR1",
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    b"\xffsNaPpY",
    b"BZh9",
    b"\x80\x04\x95",
    b"PK\3\4",
    b"\x82SNAPPY\0",
)
_GLUE = (
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'"',
    b"\\",
    b"\0",
    b"\n",
    b"\x0c",
    b"{}{}",
    b"{}null{}",
    b"//",
    b"/*",
    b"'",
    b"null",
)
_FIELDS = (b"a", b"s", b"d", b"f", b"b", b"t", b"day", b"o", b"l", b"x", b"__proto__", rb"\u0061", b"_offset", b"")
_BOMB = zlib.compress(bytes(5_000_000), 9)


def records(count: int, seed: int) -> Iterator[bytes | None]:
    """So many values; None is a tombstone."""
    chance = random.Random(seed)
    for _ in range(count):
        yield chance.choice(_MAKERS)(chance)


def giants() -> dict[str, bytes]:
    """Values of which one alone might end a process or fill a machine's memory, by what they are."""
    n = NESTED
    return {
        "arrays": b'{"x":' + b"[" * n + b"]" * n + b"}",
        "objects": b'{"x":' * n + b"1" + b"}" * n,
        "objects in a column": b'{"o":' * n + b"{}" + b"}" * n,
        "arrays in a column": b'{"l":' + b"[" * n + b"]" * n + b"}",
        "arrays that never close": b'{"l":' + b"[" * n + b"}",
        "braces alone": b"{" * n,
        "digits": b'{"a":' + b"1" * n + b"}",
        "digits of a decimal": b'{"d":' + b"1" * n + b"}",
        "digits of a fraction": b'{"f":0.' + b"1" * n + b"}",
        "names": b"{" + b",".join(b'"k%d":%d' % (i, i) for i in range(n)) + b"}",
        "one name": b"{" + b",".join([b'"a":1'] * n) + b"}",
        "escapes": b'{"s":"' + rb"\ud83d" * n + b'"}',
        "large text": b'{"s":"' + b"x" * LARGE + b'"}',
        "large junk": b"\xff" * LARGE,
        "bomb": gzip.compress(bytes(LARGE)),
        "second bomb": lzma.compress(bytes(LARGE), preset=0),
    }


def _good(chance: random.Random) -> bytes:
    return chance.choice(_GOOD)


def _tombstone(_: random.Random) -> None:
    return None


def _random(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(40))


def _spoiled(chance: random.Random) -> bytes:
    """A good one with something else in the middle."""
    text = chance.choice(_GOOD)
    at = chance.randrange(len(text) + 1)
    put = chance.choice((*_UTF8, *_SURROGATES, *_GLUE, *_MAGIC, chance.randbytes(2)))
    return text[:at] + put + text[at + chance.randrange(4) :]


def _cut(chance: random.Random) -> bytes:
    text = chance.choice(_GOOD)
    return text[: chance.randrange(len(text) + 1)]


def _odd_field(chance: random.Random) -> bytes:
    """Some fields, with values that are odd."""
    return b"{" + b",".join(b'"%s":%s' % (chance.choice(_FIELDS), _odd(chance)) for _ in range(chance.randrange(1, 4))) + b"}"


def _odd(chance: random.Random) -> bytes:
    kind = chance.randrange(6)
    if kind == 0:
        return chance.choice(_NUMBERS)
    if kind == 1:
        return chance.choice(_TIMES)
    if kind == 2:
        return b'"%s"' % b"".join(chance.choices((*_UTF8, *_SURROGATES, b"x", rb"\u0000", b"\x01"), k=3))
    if kind == 3:
        depth = chance.randrange(3_000)
        return b"[" * depth + b"]" * (depth - chance.randrange(2))
    if kind == 4:
        depth = chance.randrange(1, 1_500)
        return b'{"o":' * depth + b"1" + b"}" * depth
    return json.dumps("y" * chance.randrange(20_000)).encode()


def _magic(chance: random.Random) -> bytes:
    return chance.choice(_MAGIC) + chance.choice(_GOOD) + chance.randbytes(chance.randrange(8))


def _packed(chance: random.Random) -> bytes:
    return chance.choice((_BOMB, gzip.compress(chance.choice(_GOOD), mtime=0)))


_MAKERS: tuple[Callable[[random.Random], bytes | None], ...] = (
    *(_good, _good, _good, _good),
    *(_spoiled, _spoiled, _spoiled, _odd_field, _odd_field, _cut, _random, _magic, _packed, _tombstone),
)
