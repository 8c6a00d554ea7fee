"""Who reads what, for any group."""

from hypothesis import given
from hypothesis import strategies as st

from consumers.brokers.memory.assignment import assign
from consumers.types import TopicPartition

EVERY = [TopicPartition("t", p) for p in range(12)]
OWNED = st.dictionaries(st.sampled_from("abcdef"), st.frozensets(st.sampled_from(EVERY)), min_size=1)


@given(st.integers(0, 12), OWNED)
def test_every_partition_has_one_reader_and_shares_differ_by_one_at_most(count: int, owned: dict) -> None:
    dealt = assign(EVERY[:count], owned)
    assert sorted(tp for held in dealt.values() for tp in held) == EVERY[:count]
    sizes = [len(held) for held in dealt.values()]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(0, 12), st.integers(1, 6))
def test_dealing_again_moves_nothing(count: int, members: int) -> None:
    dealt = assign(EVERY[:count], {str(m): frozenset() for m in range(members)})
    assert assign(EVERY[:count], dealt) == dealt


@given(st.integers(1, 12), st.integers(1, 6))
def test_a_member_that_comes_takes_no_more_than_its_share(count: int, members: int) -> None:
    before = assign(EVERY[:count], {str(m): frozenset() for m in range(members)})
    after = assign(EVERY[:count], {**before, "new": frozenset()})
    moved = sum(len(before[m] - after[m]) for m in before)
    assert moved == len(after["new"])


def test_without_members_nothing_is_dealt() -> None:
    assert assign(EVERY, {}) == {}
