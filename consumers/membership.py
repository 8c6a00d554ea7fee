"""How a reader is a member of its group: a setting of the consumer's definition, and of whoever makes a member by hand."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_CLASSIC_ASSIGNORS = ("range", "roundrobin")


class GroupSettings(BaseModel):
    """The group's protocol, and a member's identity and patience. The defaults suit batches, however long one takes.

    Members poll while a batch is written, so `max_poll_seconds` only finds one that is stuck. Under the protocol `consumer` the
    brokers decide session and heartbeats.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    protocol: Literal["eager", "cooperative", "consumer"] = Field(
        default="cooperative",
        description="eager: every rebalance moves all partitions; cooperative: only those that change owner; "
        "consumer: the same, decided by the brokers (KIP-848, Kafka 4)",
    )
    assignor: str | None = Field(
        default=None,
        min_length=1,
        description="eager: range (default) or roundrobin; consumer: one that the brokers have, such as uniform or range",
    )
    instance_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=249,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="static membership: a member that comes back within the session keeps its partitions",
    )
    rack: str | None = Field(default=None, min_length=1, description="where the member runs, to fetch from a replica nearby")
    session_seconds: float | None = Field(default=None, ge=1, le=3600, description="a silent member is given up; default: 45")
    heartbeat_seconds: float | None = Field(default=None, gt=0, description="default: 3, at most a third of the session")
    max_poll_seconds: float = Field(default=300.0, ge=1, le=86_400, description="a member that stops polling is given up")
    refresh_seconds: float = Field(default=30.0, ge=0.1, le=900, description="how often to look for new partitions")

    @model_validator(mode="after")
    def _settings_fit_protocol(self) -> Self:
        if self.protocol == "cooperative" and self.assignor is not None:
            raise ValueError("assignor: the cooperative protocol has one only; leave it out")
        if self.protocol == "eager" and self.assignor not in (None, *_CLASSIC_ASSIGNORS):
            raise ValueError(f"assignor: '{self.assignor}' is none of {', '.join(_CLASSIC_ASSIGNORS)}")
        if self.protocol == "consumer" and (self.session_seconds is not None or self.heartbeat_seconds is not None):
            raise ValueError(
                "with the protocol 'consumer' the brokers decide session and heartbeats "
                "(group.consumer.session.timeout.ms, group.consumer.heartbeat.interval.ms); leave them out"
            )
        session = self.session_seconds or 45.0
        if self.heartbeat_seconds is not None and self.heartbeat_seconds > session / 3:
            raise ValueError(f"heartbeat_seconds: at most a third of the session, which is {session:g} s")
        if self.protocol != "consumer" and self.max_poll_seconds < session:
            raise ValueError(f"max_poll_seconds: at least the session, which is {session:g} s")
        return self
