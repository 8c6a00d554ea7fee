"""Checks a written result before anybody can read it. It counts and says; what follows is in the `Audit`."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.request import Audit, AuditResult
from spark_jobs.staged import records

_Figures = Mapping[str, Any]


def audit(
    written: DataFrame, audits: Sequence[Audit], inputs: Mapping[str, DataFrame], replaced: DataFrame | None
) -> tuple[AuditResult, ...]:
    """What each audit finds in the rows that were `written`, in one pass over them; each `unique` takes a pass of its own, each
    `reconcile` one over its input.

    `replaced` has the rows that a merge puts the written ones in place of: it reconciles by what was added to them.
    """
    if not audits:
        return ()
    found = _figures(written, audits)
    before = _figures(replaced, audits) if replaced is not None and _reconciles(audits) else None
    return tuple(_result(rule, found[at], before[at] if before else None, written, inputs) for at, rule in enumerate(audits))


def _figures(rows: DataFrame, audits: Sequence[Audit]) -> list[_Figures]:
    """For every audit its measures by name, and `rows`."""
    wanted = [_MEASURES[rule.kind](rule) for rule in audits]
    columns = [column.alias(f"{at} {name}") for at, measures in enumerate(wanted) for name, column in measures.items()]
    row = rows.agg(F.count(F.lit(1)).alias("rows"), *columns).collect()[0].asDict()
    return [{"rows": row["rows"], **{name: row[f"{at} {name}"] for name in measures}} for at, measures in enumerate(wanted)]


def _reconciles(audits: Sequence[Audit]) -> bool:
    return any(rule.kind == "reconcile" for rule in audits)


def _result(
    rule: Audit, found: _Figures, before: _Figures | None, written: DataFrame, inputs: Mapping[str, DataFrame]
) -> AuditResult:
    if rule.kind == "unique":
        passed, said = _unique(rule, found, written)
    elif rule.kind == "reconcile":
        passed, said = _reconcile(rule, found, before, inputs)
    else:
        passed, said = _JUDGES[rule.kind](rule, found)
    return AuditResult(rule.name, passed, rule.blocking, said)


def _outside(rule: Audit) -> Column:
    column = F.col(rule.columns[0])
    sides = [column < rule.least] if rule.least is not None else []
    sides += [column > rule.most] if rule.most is not None else []
    return reduce(or_, sides, F.lit(False))


def _null(rule: Audit) -> Column:
    return reduce(or_, (F.col(name).isNull() for name in rule.columns))


_MEASURES: Mapping[str, Callable[[Audit], dict[str, Column]]] = {
    "rows": lambda rule: {},
    "unique": lambda rule: {},
    "not_null": lambda rule: {"bad": F.count_if(_null(rule))},
    "between": lambda rule: {
        "bad": F.count_if(_outside(rule)),
        "least": F.min(rule.columns[0]),
        "most": F.max(rule.columns[0]),
    },
    "sql": lambda rule: {"bad": F.count_if(~F.coalesce(F.expr(rule.sql), F.lit(False)))},
    "reconcile": lambda rule: {"sum": F.coalesce(F.sum(F.expr(rule.sql)), F.lit(0))},
}


def _rows(rule: Audit, found: _Figures) -> tuple[bool, str]:
    rows = found["rows"]
    passed = (rule.least is None or rows >= rule.least) and (rule.most is None or rows <= rule.most)
    return passed, f"{rows:,} rows; {_range(rule)}"


def _not_null(rule: Audit, found: _Figures) -> tuple[bool, str]:
    return found["bad"] == 0, f"{_of(found)} have a null in {_names(rule)}"


def _between(rule: Audit, found: _Figures) -> tuple[bool, str]:
    said = f"{_of(found)} have a {rule.columns[0]} that is not {_range(rule)}; it goes from {found['least']} to {found['most']}"
    return found["bad"] == 0, said


def _sql(rule: Audit, found: _Figures) -> tuple[bool, str]:
    return found["bad"] == 0, f"{_of(found)} do not keep `{rule.sql}`"


_JUDGES = {"rows": _rows, "not_null": _not_null, "between": _between, "sql": _sql}


def _unique(rule: Audit, found: _Figures, written: DataFrame) -> tuple[bool, str]:
    shared = written.groupBy(*rule.columns).count().where("count > 1").agg(F.sum("count")).collect()[0][0] or 0
    return shared == 0, f"{shared:,} of {found['rows']:,} rows share their {_names(rule)} with another"


def _reconcile(rule: Audit, found: _Figures, before: _Figures | None, inputs: Mapping[str, DataFrame]) -> tuple[bool, str]:
    added = found["sum"] - (before["sum"] if before else 0)
    read = records(inputs[rule.input]).count()
    over = "what the merge added" if before else "the result"
    return added == read, f"the sum of `{rule.sql}` over {over} is {added:,}; {read:,} records of {rule.input} were read"


def _of(found: _Figures) -> str:
    return f"{found['bad']:,} of {found['rows']:,} rows"


def _names(rule: Audit) -> str:
    return ", ".join(rule.columns)


def _range(rule: Audit) -> str:
    sides = (("at least", rule.least), ("at most", rule.most))
    return " and ".join(f"{word} {bound:,.15g}" for word, bound in sides if bound is not None) or "any number"
