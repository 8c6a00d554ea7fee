"""How a shadow differs from the table beside which it stands: records added, removed and changed, and by column."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from consumers.processing.backfill.locate import at_or_past
from consumers.processing.backfill.shadow import Shadow, rows_of
from consumers.staging.local import windows_of
from consumers.staging.places import absent_from, in_order, present
from consumers.staging.schema import PLACE, WINDOW


@dataclass
class Difference:
    """Counts of records. `moved` are in another window; they are neither added nor removed. `columns`: name → changed values."""

    before: int = 0
    after: int = 0
    added: int = 0
    removed: int = 0
    moved: int = 0
    changed: int = 0
    columns: Counter[str] = field(default_factory=Counter)


def difference(shadow: Shadow) -> Difference:
    """Compare window by window. Rows of windows that the shadow was not built of, and later ones, are left out."""
    table, beside = DeltaTable(shadow.consumer.staged), shadow.open()
    positions = shadow.positions()
    found = Difference()
    built = {*windows_of(beside)}
    for window in sorted({*windows_of(table), *built}):
        done = shadow.done(window)
        if not done and window not in built:
            continue
        old = rows_of(table, window if done else "")
        old = old.filter(pa.array(~at_or_past(table, shadow.consumer, old, positions)))
        new = rows_of(beside, window)
        came = new.filter(pa.array(absent_from(old, new)))
        went = old.filter(pa.array(absent_from(new, old)))
        moved_in, moved_out = present(table, came), present(beside, went)
        found.before += old.num_rows
        found.after += new.num_rows
        found.moved += int(moved_in.sum())
        found.added += int((~moved_in).sum())
        found.removed += int((~moved_out).sum())
        _compare(old, new, found)
    return found


def _compare(old: pa.Table, new: pa.Table, found: Difference) -> None:
    old = in_order(old.filter(pa.array(~absent_from(new, old))))
    new = in_order(new.filter(pa.array(~absent_from(old, new))))
    changed = np.zeros(new.num_rows, np.bool_)
    for name in new.column_names:
        if name in (*PLACE, WINDOW, "_headers"):
            continue
        different = _different(old, new, name)
        if count := int(different.sum()):
            found.columns[name] += count
        changed |= different
    found.changed += int(changed.sum())


def _different(old: pa.Table, new: pa.Table, name: str) -> np.ndarray:
    """Which values of a column differ; of one that is new, those that are there; of another type, those that are another text."""
    after = new[name]
    if name not in old.column_names:
        return np.asarray(after.is_valid().to_numpy(zero_copy_only=False))
    before, after = _comparable(old[name]), _comparable(after)
    if before.type != after.type:
        before, after = before.cast(pa.string()), after.cast(pa.string())
    same = pc.or_(pc.fill_null(pc.equal(before, after), False), pc.and_(before.is_null(), after.is_null()))
    return np.asarray(pc.invert(same).to_numpy(zero_copy_only=False))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Arrow compares no views, which is how some tables' texts and bytes are read."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return column.cast(plain[column.type]) if column.type in plain else column
