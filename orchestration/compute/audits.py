"""A job's audits as its YAML says them."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from spark_jobs.request import Audit

_RULES = ("rows", "not_null", "unique", "between", "sql", "reconcile")
_Columns = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Bounds(_Strict):
    """From `least` to `most`; one may be left out."""

    least: float | None = None
    most: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.least is None and self.most is None:
            raise ValueError("say least, most or both")
        return self


class Between(Bounds):
    """The values of a column."""

    column: str


class Reconcile(_Strict):
    """The sum of an expression over the result is the number of records of an input."""

    input: str
    sum: Annotated[str, Field(description="an expression over a row of the result, such as flights, or 1")]


class AuditConfig(_Strict):
    """One rule, and whether a result that breaks it is kept from readers."""

    rows: Annotated[Bounds | None, Field(description="the number of rows")] = None
    not_null: Annotated[_Columns | None, Field(description="columns without nulls")] = None
    unique: Annotated[_Columns | None, Field(description="no two rows are equal in these columns")] = None
    between: Annotated[Between | None, Field(description="a column's values; nulls pass")] = None
    sql: Annotated[str | None, Field(min_length=1, description="a predicate that is true for every row")] = None
    reconcile: Annotated[Reconcile | None, Field(description="as many records as were read of an input")] = None
    blocking: Annotated[bool, Field(description="a result that breaks the rule is not published")] = True

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if len(said := [rule for rule in _RULES if getattr(self, rule) is not None]) != 1:
            raise ValueError(f"an audit is one of {', '.join(_RULES)}; this is {', '.join(said) or 'none'}")
        return self

    def audit(self, name: str) -> Audit:
        """The form that is sent to Spark."""
        if self.rows is not None:
            return Audit(name, "rows", least=self.rows.least, most=self.rows.most, blocking=self.blocking)
        if self.not_null is not None:
            return Audit(name, "not_null", self.not_null, blocking=self.blocking)
        if self.unique is not None:
            return Audit(name, "unique", self.unique, blocking=self.blocking)
        if self.between is not None:
            rule = self.between
            return Audit(name, "between", (rule.column,), rule.least, rule.most, blocking=self.blocking)
        if self.reconcile is not None:
            return Audit(name, "reconcile", sql=self.reconcile.sum, input=self.reconcile.input, blocking=self.blocking)
        return Audit(name, "sql", sql=self.sql or "", blocking=self.blocking)
