"""What a member reads, and how it begins: the part of a consumer's definition that the loop needs."""

from dataclasses import dataclass
from typing import Literal

POLL_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class Subscription:
    """A consumer's name (for messages), its topic, and where it starts when nothing is committed yet.

    `start` is `earliest`, `latest`, or an ISO timestamp. `on_data_loss` says whether offsets that are gone stop the member or are
    recorded. `poll_records` is the most that one poll takes. `revoke_seconds` is how long work in flight may take to finish when
    partitions are revoked; what is not finished then is discarded and read again by whoever gets them.
    """

    name: str
    topic: str
    start: str = "earliest"
    on_data_loss: Literal["fail", "record"] = "fail"
    poll_records: int = POLL_RECORDS
    revoke_seconds: float = 30.0
