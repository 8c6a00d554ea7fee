"""A user's function that fails."""

import pyarrow as pa


def failing(rows: pa.Table) -> pa.Table:
    """Never returns."""
    raise RuntimeError("the function does not like these rows")
