"""Compares what the platform made of the sample topics with what must come out, computed without it, from the source files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from consumers.config import Consumer
from consumers.staging.local import local_dataset
from consumers.types import TopicPartition, Watermarks
from orchestration.samples.produce import Produced
from orchestration.samples.records import expected_balances, malformed_rows
from orchestration.samples.sources import SEED, flights_frame

_NAMED = 5
_ORIGIN = ["_partition", "_offset"]


@dataclass(frozen=True)
class Verdict:
    """One comparison: what was compared, the figures, and every difference in words (none when it holds)."""

    what: str
    expected: str
    found: str
    differences: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing differs."""
        return not self.differences


def staged_exactly_once(consumer: Consumer, produced: Produced, marks: dict[TopicPartition, Watermarks]) -> Verdict:
    """Every record of the topic is in the staged table or in the dead letters, once, and the malformed ones in the latter."""
    staged = _origins(consumer.staged)
    dead = _origins(consumer.dead_letters)
    wanted = {(tp.partition, offset) for tp, mark in marks.items() for offset in range(mark.low, mark.high)}
    both = pd.concat([staged, dead])
    twice = both[both.duplicated()].drop_duplicates()
    there = set(both.itertuples(index=False, name=None))
    problems = [
        *_named("not staged", sorted(wanted - there)),
        *_named("more than once", list(twice.itertuples(index=False, name=None))),
        *_named("not in the topic", sorted(there - wanted)),
    ]
    if len(wanted) != produced.records:
        problems.append(f"the topic holds {len(wanted):,} records instead of {produced.records:,}")
    if len(dead) != produced.malformed:
        problems.append(f"{len(dead):,} dead letters instead of {produced.malformed:,}")
    return Verdict(
        f"{consumer.name}: each record once",
        f"{produced.records - produced.malformed:,} rows, {produced.malformed:,} dead letters",
        f"{len(staged):,} rows, {len(dead):,} dead letters",
        tuple(problems),
    )


def delays(output: Path, malformed: float) -> Verdict:
    """Flights, cancellations, mean and 90th percentile of the delay, by day and origin, against pandas."""
    flights = flights_frame()
    flights = flights[~malformed_rows(len(flights), malformed, SEED)]
    flights["day"] = flights["time_hour"].dt.strftime("%Y-%m-%d")
    delay = flights.assign(dep_delay=flights["dep_delay"].astype("float64")).groupby(["day", "origin"])["dep_delay"]
    wanted = pd.DataFrame(
        {
            "flights": flights.groupby(["day", "origin"]).size(),
            "cancelled": flights["dep_time"].isna().groupby([flights["day"], flights["origin"]]).sum(),
            "mean_delay": delay.mean(),
            "p90_delay": delay.quantile(0.9),
        }
    )
    found = local_dataset(DeltaTable(output)).to_table(columns=["day", "origin", *wanted.columns]).to_pandas()
    found["day"] = found["day"].astype(str)
    found = found.set_index(["day", "origin"]).sort_index()
    return Verdict(
        "airport_delays against pandas",
        f"{len(wanted):,} days and origins, {int(wanted['flights'].sum()):,} flights",
        f"{len(found):,} days and origins, {int(found['flights'].sum()):,} flights",
        tuple(_differing(wanted, found)),
    )


def balances(output: Path, malformed: float) -> Verdict:
    """The balance of every account against the generator's."""
    wanted = expected_balances(malformed=malformed)
    frame = local_dataset(DeltaTable(output)).to_table(columns=["account_id", "balance_cents"]).to_pandas()
    found = dict(zip(frame["account_id"], frame["balance_cents"], strict=True))
    wrong = [
        f"{account}: {found.get(account, 0)} instead of {cents} cents"
        for account, cents in sorted(wanted.items())
        if found.get(account, 0) != cents
    ]
    foreign = _named("unknown accounts", sorted(found.keys() - wanted.keys()))
    return Verdict(
        "account_balances against the generator",
        f"{len(wanted):,} accounts, {sum(wanted.values()):,} cents",
        f"{len(found):,} accounts, {sum(found.values()):,} cents",
        (*_named("accounts that differ", wrong), *foreign),
    )


def _origins(table: Path) -> pd.DataFrame:
    """Partition and offset of every row; of dead letters those that are not rows by now."""
    if not DeltaTable.is_deltatable(str(table)):
        return pd.DataFrame({name: np.array([], np.int64) for name in _ORIGIN})
    dataset = local_dataset(DeltaTable(table))
    waiting = ds.field("_resolved_at").is_null() if "_resolved_at" in dataset.schema.names else None
    rows: pa.Table = dataset.to_table(columns=_ORIGIN, filter=waiting)
    return pd.DataFrame({name: rows[name].to_numpy().astype(np.int64) for name in _ORIGIN})


def _differing(wanted: pd.DataFrame, found: pd.DataFrame) -> list[str]:
    missing = wanted.index.difference(found.index)
    extra = found.index.difference(wanted.index)
    problems = [*_named("missing", list(missing)), *_named("not expected", list(extra))]
    common = wanted.index.intersection(found.index)
    for column in wanted.columns:
        left = wanted.loc[common, column].to_numpy(np.float64, na_value=np.nan)
        right = found.loc[common, column].to_numpy(np.float64, na_value=np.nan)
        unequal = ~np.isclose(left, right, rtol=1e-9, atol=1e-9, equal_nan=True)
        where = zip(common[unequal], right[unequal], left[unequal], strict=True)
        problems += _named(column, [f"{key}: {is_:g} instead of {should_be:g}" for key, is_, should_be in where])
    return problems


def _named(what: str, found: Sequence[object]) -> list[str]:
    """A line with a few of them and their number; none for none."""
    if not found:
        return []
    shown = ", ".join(str(each) for each in found[:_NAMED])
    return [f"{what}: {shown}{', …' if len(found) > _NAMED else ''} ({len(found):,} in all)"]
