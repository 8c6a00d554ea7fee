"""Compares the balances with what the generator of the sample transactions says they are."""

from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pandas as pd
from deltalake import DeltaTable

from orchestration.compute.pins import Pinned
from orchestration.samples.sources import transactions_frame

_NAMED = 5


def balances_match(output: Path, inputs: Mapping[str, Pinned]) -> dg.AssetCheckResult:
    """Whether each account has the sum of the generated amounts of the transactions that were staged.

    Only the ids are taken from the staged table, at the version that the balances were computed from: so
    neither records still on their way nor dead letters look like wrong balances, but a wrong, repeated or
    foreign transaction does.
    """
    generated = transactions_frame().set_index("transaction_id")
    staged = _staged_ids(inputs["transactions"])
    expected = generated[generated.index.isin(staged)].groupby("account_id")["amount_cents"].sum()
    foreign = sorted(set(staged) - set(generated.index))
    different = differences(balances(output), expected)
    return dg.AssetCheckResult(
        passed=not different and not foreign,
        description=_describe(different, foreign),
        metadata={
            "accounts": len(expected),
            "different": len(different),
            "foreign_transactions": len(foreign),
            "transactions_staged": len(staged),
            "transactions_not_staged": len(generated) - len(set(staged)),
        },
    )


def balances(output: Path) -> "pd.Series[int]":
    """Cents by account, as the table holds them."""
    frame = DeltaTable(str(output)).to_pandas(columns=["account_id", "balance_cents"])
    return frame.set_index("account_id")["balance_cents"]


def differences(actual: "pd.Series[int]", expected: "pd.Series[int]") -> list[str]:
    """One text for each account whose balance differs or that only one side has, in order."""
    both = pd.DataFrame({"actual": actual, "expected": expected}).sort_index()
    wrong = both[both["actual"].ne(both["expected"])]
    return [
        f"{account}: {_cents(is_)} instead of {_cents(should_be)}"
        for account, is_, should_be in zip(wrong.index, wrong["actual"], wrong["expected"], strict=True)
    ]


def _staged_ids(staged: Pinned) -> list[int]:
    table = DeltaTable(str(staged.path), version=staged.version)
    frame = table.to_pandas(columns=["transaction_id"], filters=[("_tombstone", "=", False)])
    return [int(value) for value in frame["transaction_id"]]


def _cents(value: float) -> str:
    return "nothing" if pd.isna(value) else f"{int(value)} cents"


def _describe(different: list[str], foreign: list[int]) -> str:
    parts = []
    if different:
        parts.append(f"{len(different)} accounts differ: {'; '.join(different[:_NAMED])}")
    if foreign:
        parts.append(f"{len(foreign)} transactions were never generated: {', '.join(map(str, foreign[:_NAMED]))}")
    return ". ".join(parts) or "every balance is as expected"
