"""What a job's YAML may say under `publish`, and the names in Kafka that follow from it."""

import hashlib
import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Topic = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
Column = Annotated[str, Field(min_length=1)]


class Feed(BaseModel):
    """A topic that gets the rows of a table, and their changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    topic: Annotated[Topic, Field(description="the topic that gets the changed rows")]
    keys: Annotated[list[Column], Field(min_length=1, description="columns that tell the table's rows apart: the record's key")]
    columns: Annotated[
        list[Column] | Literal["all"],
        Field(description="columns of the record's value; all: every one whose name does not begin with _"),
    ] = "all"
    start: Annotated[
        Literal["start", "now"],
        Field(alias="from", description="start: the first time, all rows are sent; now: changes from the present version on"),
    ] = "start"
    partitions: Annotated[
        int | None,
        Field(ge=1, description="makes a topic that does not exist, compacted, of so many partitions; default: it must exist"),
    ] = None
    transaction_seconds: Annotated[
        float,
        Field(gt=0, description="how long sending one version may take; the brokers allow 900, unless they are told otherwise"),
    ] = 600.0

    def group(self, table: str, table_id: str) -> str:
        """The group whose offset is the version that was sent.

        A table that was made anew, other keys and other columns are another group's, which begins from the beginning.
        """
        what = json.dumps([table_id, self.keys, self.columns])
        return f"{transactional_id(table)}-{hashlib.sha256(what.encode()).hexdigest()[:8]}"


def transactional_id(table: str) -> str:
    """The same for whoever publishes the table, so that the newest fences the others."""
    return f"weir-publish-{table}"
