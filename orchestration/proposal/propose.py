"""A new consumer's `defs.yaml`: proposed from its topic where that can be read, else a template. Never over another file."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from consumers.brokers.protocol import BrokerConsumer
from consumers.clock import Clock
from consumers.config import ConsumerConfig
from consumers.errors import ConfigError
from orchestration.catalog import named
from orchestration.proposal.draft import Draft, draft
from orchestration.proposal.sample import Sample, both_ends, read
from orchestration.proposal.text import plain, proposed
from orchestration.settings import Settings

RECORDS = 1000
SECONDS = 20.0
_SMALLEST = ConsumerConfig.model_validate({"topic": "t", "schema": {"id": "long"}, "window": "day"})
Connect = Callable[[], BrokerConsumer]
"""Makes a reader of the topic, without a group. Raises WeirError when there is none."""


@dataclass(frozen=True)
class Definition:
    """The file's text; what it was proposed from, or why it was not."""

    text: str
    draft: Draft | None
    why_plain: str


def definition(topic: str, connect: Connect | None, why_not: str, clock: Clock, records: int = RECORDS) -> Definition:
    """The definition for a topic. Without `connect` it is the template, for the reason `why_not`."""
    if connect is None:
        return Definition(plain(topic, why_not), None, why_not)
    first, last = (_sample(connect, topic, start, records, clock) for start in ("earliest", "latest"))
    found = both_ends(first, last)
    if found.num_rows == found["value"].null_count:
        why = f"Topic '{topic}' has no record with a value yet, so nothing is proposed: mend the schema."
        return Definition(plain(topic, why), None, why)
    now = datetime.fromtimestamp(clock.time(), UTC)
    made = draft(topic, found, first.total, len(first.marks), now)
    return Definition(proposed(made, now.date().isoformat()), made, "")


def consumers_folder(settings: Settings) -> Path:
    """Where the project's consumers are defined."""
    return settings.project / "orchestration" / "defs" / "consumers"


def require_free(folder: Path, name: str, settings: Settings) -> Path:
    """The path of a new definition. Raises ConfigError for a name that cannot be, and for a file that is there."""
    try:
        named(name, _SMALLEST, settings)
    except ValidationError as error:
        raise ConfigError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
    path = folder / name / "defs.yaml"
    if path.exists():
        raise ConfigError(f"{path} is there already, and was left as it is. Choose another name, or move it away.")
    return path


def write(folder: Path, name: str, text: str, settings: Settings) -> Path:
    """Write `folder/name/defs.yaml`; raises as `require_free`."""
    path = require_free(folder, name, settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _sample(connect: Connect, topic: str, start: str, records: int, clock: Clock) -> Sample:
    with closing(connect()) as reader:
        return read(reader, topic, "earliest" if start == "earliest" else "latest", -(-records // 2), SECONDS, clock)
