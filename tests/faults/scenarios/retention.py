"""Retention takes records that no member has read yet; the consumer's definition says to record such a loss."""

from consumers.staging.log import commits
from consumers.staging.positions import committed_positions
from tests.faults.lab import Lab
from tests.faults.ledger import delete_records
from tests.faults.scenario import Outcome, scenario

_GONE = 10


@scenario("retention overtakes", times=10)
def run(lab: Lab, times: int, records: int, seed: int) -> Outcome:
    """The ledger forgets what the topic lost, and nothing else; each loss must be in the table's log with its offsets."""
    part = records // times
    lab.set_up(part, on_data_loss="record")
    with lab.faults():
        for _ in range(times):
            lab.produce(part)
            lab.catch_up(part)
            lab.produce(part // 2)
            overtake(lab)
            lab.struck()
            lab.catch_up(part)
            lab.watch.look()
    recorded = sum(len(lost) for commit in commits(lab.consumer.staged) for lost in commit.lost.values())
    assert recorded == len(lab.ledger.gone), f"{len(lab.ledger.gone)} records are gone, the log tells of {recorded}"
    return lab.outcome(times)


def overtake(lab: Lab) -> None:
    """Take the first records that no member has read from each partition."""
    topic = lab.consumer.config.topic
    where = committed_positions(lab.consumer.staged, lab.consumer.name, topic, lab.partitions)
    places = {(tp.partition, offset) for tp, at in where.items() for offset in range(at, at + _GONE)}
    lab.ledger.gone += [record for record in lab.ledger.acked if (record.partition, record.offset) in places]
    lab.ledger.acked = [record for record in lab.ledger.acked if (record.partition, record.offset) not in places]
    delete_records(lab.bootstrap, topic, {tp.partition: at + _GONE for tp, at in where.items()})
