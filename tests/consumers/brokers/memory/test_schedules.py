"""Random members come, go, freeze and are thrown out: partitions never have two holders, and all have one in the end."""

from random import Random

import pytest

from tests.consumers.brokers.memory.parts import Parts, turns
from tests.contracts.brokers.backends import Follower

SEEDS = 40
STEPS = 60


def present(members: list[Follower], parts: Parts) -> list[Follower]:
    """Those that the group has, so that what they hold is theirs."""
    known = parts.cluster.members("g")
    return [member for member in members if member.consumer._member in known]


def step(members: list[Follower], parts: Parts, chance: Random, protocol: str) -> None:
    match chance.randrange(12):
        case 0 if len(members) < 5:
            static = {"instance_id": f"i{chance.randrange(1_000_000)}"} if chance.random() < 0.3 else {}
            members.append(parts.member(f"m{chance.random()}", protocol=protocol, **static))
        case 1 if len(members) > 1:
            members.pop(chance.randrange(len(members))).consumer.close()
        case 2 if members:
            chance.choice(members).consumer.expel(unaware_polls=chance.randrange(3))
        case 3 if members:
            chance.choice(members).consumer.freeze()
        case 4:
            parts.clock.advance(chance.choice([1, 30, 100]))
        case 5:
            parts.cluster.rebalance("g")
        case 6 if parts.admin.partitions("t") < 9:
            parts.admin.add_partitions("t", parts.admin.partitions("t") + 1)
        case _ if members:
            chance.choice(members).turn()


@pytest.mark.parametrize("protocol", ["eager", "cooperative", "consumer"])
def test_a_partition_never_has_two_holders_and_every_one_has_one_in_the_end(protocol: str) -> None:
    for seed in range(SEEDS):
        chance, parts, members = Random(seed), Parts(4), list[Follower]()
        for _ in range(STEPS):
            step(members, parts, chance, protocol)
            held = [tp for member in present(members, parts) for tp in member.held]
            assert len(held) == len(set(held)), f"seed {seed}"
        members = members or [parts.member("last", protocol=protocol)]
        turns(*members, rounds=5)
        parts.clock.advance(50)  # whoever is only expected back is out by now
        turns(*members, rounds=15)
        held = sorted(tp for member in members for tp in member.held)
        assert held == sorted(parts.cluster.every("t")), f"seed {seed}"
        shares = [len(member.held) for member in members]
        assert max(shares) - min(shares) <= 1, f"seed {seed}"
