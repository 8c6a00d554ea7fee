"""The sample consumer `transactions`, by its own YAML."""

from datetime import UTC, datetime

from orchestration.testing import run_consumer

BOOKED = {"transaction_id": 1, "account_id": "A00475", "amount_cents": -42347, "booked_at": "2013-06-01T00:00:25Z"}


def test_a_transaction_keeps_its_cents_and_its_second() -> None:
    expected = BOOKED | {"booked_at": datetime(2013, 6, 1, 0, 0, 25, tzinfo=UTC)}
    assert run_consumer("transactions", [{"value": BOOKED, "key": "A00475"}]).rows == [expected]


def test_a_fraction_of_a_cent_is_a_dead_letter() -> None:
    assert len(run_consumer("transactions", [{"value": BOOKED | {"amount_cents": 0.5}}, {"value": BOOKED}]).dead_letters) == 1


def test_a_deleted_account_is_a_tombstone() -> None:
    staged = run_consumer("transactions", [{"key": "A00475", "value": None}])
    assert staged.table["_tombstone"].to_pylist() == [True] and staged.rows[0]["account_id"] is None
