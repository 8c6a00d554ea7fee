"""Which windows fit: by the record's own timestamp or by a column, by the hour or by the day."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from consumers.config import Window
from orchestration.proposal.columns import Proposed
from orchestration.proposal.fields import Field, Path, times

_DAY = timedelta(days=1)
_LOADED_WITHIN = timedelta(hours=6)
_SPREADS = 20
_BYGONE = timedelta(days=365)
_BIG_DAY = 2**30


@dataclass(frozen=True)
class Extent:
    """The first and the last of some times."""

    first: datetime
    last: datetime

    @property
    def span(self) -> timedelta:
        """From the first to the last."""
        return self.last - self.first

    def __str__(self) -> str:
        return f"{_minute(self.first)} to {_minute(self.last)}"


@dataclass(frozen=True)
class Rate:
    """What the topic gets in a day of event time; None where the sample says nothing about it."""

    records: float | None
    bytes: float | None


@dataclass(frozen=True)
class WindowChoice:
    """The window, and why."""

    window: Window
    why: str


def extent(stamps: pa.Array) -> Extent | None:
    """The extent of timestamps; None where there are none."""
    found = pc.min_max(stamps)
    first, last = found["min"].as_py(), found["max"].as_py()
    return None if first is None else Extent(_moment(first), _moment(last))


def propose(
    stamps: pa.Array,
    columns: Mapping[str, Proposed],
    fields: Mapping[Path, Field],
    total: int,
    record_bytes: float,
    now: datetime,
) -> WindowChoice:
    """`stamps` are the records' own timestamps, `total` how many records the topic holds."""
    own = extent(_sane(stamps))
    field, by = _field(own, columns, fields)
    if by is None:
        return WindowChoice(Window(every="day"), "the sample tells nothing about time")
    rate = _rate(by, total, record_bytes)
    every: Literal["hour", "day"] = "hour" if (rate.bytes or 0) > _BIG_DAY and not _is_date(columns, field) else "day"
    # Of partitions up to today, the newest would have nothing, and those are what Dagster shows.
    last = by.last.date().isoformat() if now - by.last > _BYGONE else None
    window = Window(every=every, field=field, first=by.first.date().isoformat(), last=last)
    return WindowChoice(window, _why(own, field, by, rate))


def _field(own: Extent | None, columns: Mapping[str, Proposed], fields: Mapping[Path, Field]) -> tuple[str | None, Extent | None]:
    """The column to go by where the records' own timestamps look like the time at which they were loaded."""
    if own is not None and own.span > _LOADED_WITHIN:
        return None, own
    for name, proposed in columns.items():
        kind = proposed.column.type
        if kind in ("timestamp", "date") and (found := extent(times(fields[proposed.path].texts, kind))):
            floor = own.span if own is not None else timedelta()
            if found.span > max(_DAY, floor * _SPREADS):
                return name, found
    return None, own


def _why(own: Extent | None, field: str | None, by: Extent, rate: Rate) -> str:
    pace = "too short a time to tell a rate" if rate.records is None else f"about {_count(rate.records)} records a day"
    if field is None:
        return f"record timestamps go from {by}, {pace}"
    loaded = f"record timestamps ({own}) look like the time of loading" if own else "records have no timestamp"
    return f"{loaded}; {field} goes from {by}, {pace}"


def _rate(by: Extent, total: int, record_bytes: float) -> Rate:
    days = by.span / _DAY
    return Rate(None, None) if days < 1 / 24 else Rate(total / days, total / days * record_bytes)


def _is_date(columns: Mapping[str, Proposed], field: str | None) -> bool:
    return field is not None and columns[field].column.type == "date"


def _sane(stamps: pa.Array) -> pa.Array:
    """Without those that no calendar has, and without -1, which says that there is none."""
    millis = stamps.cast(pa.int64())
    return stamps.filter(pc.and_(pc.greater(millis, 0), pc.less(millis, 253_402_300_799_999)))


def _moment(found: object) -> datetime:
    if isinstance(found, datetime):
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return datetime.fromisoformat(f"{found}T00:00:00+00:00")


def _minute(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")


def _count(number: float) -> str:
    """Two digits, which is what a sample can tell."""
    return f"{round(number, 1 - len(str(int(number)))) if number >= 1 else number:,.0f}" if number >= 10 else f"{number:.1f}"
