"""What the tables hold, whatever a page says."""

from orchestration.demo import verify
from orchestration.samples.produce import Produced
from tests.integration.platform import Platform


def whole(platform: Platform, name: str) -> bool:
    """Whether the staged table holds every record of the topic, once, and no dead letter waits."""
    marks = platform.marks(name)
    produced = Produced(name, sum(mark.high for mark in marks.values()), malformed=0, failed=0)
    return verify.staged_exactly_once(platform.consumer(name), produced, marks).passed
