"""Who reads what: a balanced and sticky assignment. Pure."""

from collections.abc import Iterable, Mapping

from consumers.brokers.protocol import Partitions
from consumers.types import TopicPartition


def assign(partitions: Iterable[TopicPartition], owned: Mapping[str, Partitions]) -> dict[str, Partitions]:
    """Partitions for every member in `owned`, which says what each holds now.

    Counts differ by one at most, and no partition moves that need not: each member keeps what it holds up to its share, and only
    the rest is given out. The same input gives the same answer.
    """
    every = sorted(set(partitions))
    if not owned:
        return {}
    share, larger = divmod(len(every), len(owned))
    known = set(every)
    taken: set[TopicPartition] = set()
    kept: dict[str, list[TopicPartition]] = {}
    for member in sorted(owned, key=lambda m: (-len(owned[m] & known), m)):
        held = sorted((owned[member] & known) - taken)
        keeps_larger = larger > 0 and len(held) > share
        larger -= keeps_larger
        kept[member] = held[: share + keeps_larger]
        taken.update(kept[member])
    rest = [tp for tp in every if tp not in taken]
    for member in sorted(kept):
        while len(kept[member]) < share:
            kept[member].append(rest.pop(0))
    for member in sorted(kept, key=lambda m: (len(kept[m]), m)):
        if rest:
            kept[member].append(rest.pop(0))
    return {member: frozenset(held) for member, held in kept.items()}
