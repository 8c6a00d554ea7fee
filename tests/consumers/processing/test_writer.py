"""What a writer says of its own commits in the log."""

from pathlib import Path

from consumers.clock import ManualClock
from consumers.processing.strategies.stage.buffer import Buffer
from consumers.staging.log import commits
from tests.consumers.parts import consumer
from tests.consumers.staging.rewriting import GOOD, Ingestion, shaped


class Ticking(ManualClock):
    """Time passes whenever somebody looks."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


def test_the_log_has_how_long_the_members_commit_before_took(tmp_path: Path) -> None:
    member = Ingestion(consumer(tmp_path), Ticking(1000))
    taken = []
    for offset in range(3):
        buffer = Buffer()
        buffer.add(shaped(member.consumer, [GOOD], offset), 0.0)
        taken.append(member.writer.write(buffer, member.owner.holds, {}).timings.commit)
    logged = [commit.timings.commit for commit in commits(member.consumer.staged) if commit.kind == "batch"]
    assert logged == [0.0, *taken[:-1]] and all(taken)
