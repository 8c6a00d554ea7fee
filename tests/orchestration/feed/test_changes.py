"""The difference of two versions, as a property of any two."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.feed.changes import SameKey, changed, gone
from tests.orchestration.feed.tables import applied

KEYS = st.binary(min_size=1, max_size=1)
TABLES = st.dictionaries(KEYS, st.binary(max_size=2), max_size=6)


@given(st.lists(TABLES, max_size=5))
def test_a_reader_of_the_feed_holds_the_table_at_every_version_and_gets_nothing_that_did_not_change(
    versions: list[dict[bytes, bytes]],
) -> None:
    held: dict[bytes, bytes] = {}
    for table in versions:
        tombstones = gone(held, table)
        upserts = list(changed(held.items(), table.items()))
        assert all(key in held for key in tombstones)
        assert all(held.get(key) != value for key, value in upserts)
        held = applied([*held.items(), *((key, None) for key in tombstones), *upserts])
        assert held == table


@given(TABLES.filter(bool), st.data())
def test_a_key_that_a_version_has_twice_is_refused(table: dict[bytes, bytes], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(table)))
    printable = [(b"k%d" % k[0], v) for k, v in table.items()]
    with pytest.raises(SameKey, match=f"k{key[0]}"):
        list(changed([], [*printable, (b"k%d" % key[0], b"again")]))
