"""What Dagster shows of a dead-letter table: the summary as metadata, with tables whose size is bounded."""

from collections.abc import Mapping
from datetime import datetime

import dagster as dg

from consumers.clock import moment
from consumers.config import Consumer
from consumers.staging.dead_letters_summary import Summary, dead_letter_summary
from orchestration.mirror_events import table


def summary_metadata(consumer: Consumer) -> dict[str, dg.MetadataValue]:
    """A consumer's dead letters as they are now. Reads narrow columns of the table."""
    found = dead_letter_summary(consumer)
    return {
        "unresolved": dg.MetadataValue.int(found.unresolved),
        "resolved_in_all": dg.MetadataValue.int(found.resolved),
        "reasons": _reasons(found),
        "by_window": table({"window": "string", "dead_letters": "int"}, list(found.windows)),
        "samples": _samples(found, consumer.config.show_values),
    }


def outcomes(fixed: Mapping[str, int], invalid: Mapping[str, int]) -> dg.TableMetadataValue:
    """What a replay did, by reason: the one that fixed dead letters had, and the one that the others have now."""
    names = sorted(fixed.keys() | invalid.keys(), key=lambda name: (-fixed.get(name, 0) - invalid.get(name, 0), name))
    rows = [(name, fixed.get(name, 0), invalid.get(name, 0)) for name in names]
    return table({"reason": "string", "fixed": "int", "still_invalid": "int"}, rows)


def _reasons(found: Summary) -> dg.TableMetadataValue:
    rows = [(each.reason, each.count, _time(each.oldest), _time(each.newest), each.example) for each in found.reasons]
    return table({"reason": "string", "count": "int", "oldest": "string", "newest": "string", "example": "string"}, rows)


def _samples(found: Summary, show_values: bool) -> dg.TableMetadataValue:
    if not show_values:
        return table({"id": "string", "reason": "string"}, [(each.example, each.reason) for each in found.samples])
    rows = [(each.example, each.reason, each.value or "") for each in found.samples]
    return table({"id": "string", "reason": "string", "value": "string"}, rows)


def _time(at: datetime | None) -> str:
    return moment(at.timestamp()) if at is not None else ""
