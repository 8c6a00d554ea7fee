"""What a client's error means: whether it passes, how to say it, and what to do about it."""

from typing import Any

import confluent_kafka as ck
from confluent_kafka import KafkaError, KafkaException

from consumers.errors import BrokerError

CLIENT_ERRORS: Any = (KafkaException, KafkaError, SystemError)
"""What a call of the client may raise: fatal errors come bare, although a `KafkaError` is no exception, and where the client then
still calls back, Python finds an error set in there and wraps it into a SystemError (`known` finds it)."""

_ELECTING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._NOENT,  # list_offsets: no leader in the client's cached metadata
)

WHEN_AWAY = "See that the cluster is up and can be reached from here, then start again"
_RIGHTS = "Give the principal the right (read and describe on the topic, read on the group), then start again"
_CREDENTIALS = "Look at the credentials and at the security protocol of the Kafka resource, then start again"
_NO_TOPIC = "Create the topic, or mend its name or the address of the cluster"

_ADVICE = {
    KafkaError._AUTHENTICATION: _CREDENTIALS,
    KafkaError.SASL_AUTHENTICATION_FAILED: _CREDENTIALS,
    KafkaError._SSL: "Look at the certificates and at the security protocol of the Kafka resource, then start again",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _RIGHTS,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _RIGHTS,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _RIGHTS,
    KafkaError.UNKNOWN_TOPIC_OR_PART: _NO_TOPIC,
    KafkaError._UNKNOWN_TOPIC: _NO_TOPIC,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: (
        "Members that run already speak another protocol. Stop all of them, then start them with the new membership settings"
    ),
    KafkaError.GROUP_ID_NOT_FOUND: "The group has members of the other kind. Stop all of them before its protocol is changed",
    KafkaError.UNSUPPORTED_VERSION: "The brokers are too old for this: with them, use `membership: {protocol: cooperative}`",
    KafkaError.UNSUPPORTED_ASSIGNOR: "The brokers lack this assignor: leave `membership.assignor` out, or name one of theirs",
    KafkaError.INVALID_SESSION_TIMEOUT: (
        "The brokers allow sessions from group.min.session.timeout.ms to group.max.session.timeout.ms: "
        "mend `membership.session_seconds`"
    ),
    KafkaError.FENCED_INSTANCE_ID: "Another member runs with the same instance id: give each its own, or stop the other one",
    KafkaError.UNRELEASED_INSTANCE_ID: "Another member runs with the same instance id: give each its own, or stop the other one",
    KafkaError._ALL_BROKERS_DOWN: WHEN_AWAY,
    KafkaError._TRANSPORT: WHEN_AWAY,
    KafkaError._TIMED_OUT: WHEN_AWAY,
}


_HINTS = {
    KafkaError._UNKNOWN_TOPIC: "the topic does not exist; create it, or mend its name",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic does not exist; create it, or mend its name",
    KafkaError._UNKNOWN_PARTITION: "the topic has fewer partitions; leave the partition out, so that the key decides",
}


def known(error: BaseException) -> KafkaError | None:
    """The client's error within an exception, or that a SystemError came of."""
    found: Any = error
    while isinstance(found, SystemError):
        found = found.__cause__ or found.__context__
    inner = found.args[0] if isinstance(found, KafkaException) and found.args else found
    return inner if isinstance(inner, ck.KafkaError) else None


def passing(error: BaseException) -> bool:
    """Whether the cluster will know soon: a leader is being elected, or a new topic has not reached every broker."""
    inner = known(error)
    return inner is not None and inner.code() in _ELECTING


def in_words(error: KafkaError) -> str:
    """An error and its name."""
    return f"{error.str()} ({error.name()})"


def undelivered(error: KafkaError) -> str:
    """Why a record was not delivered, and what to do where the reason does not say so itself."""
    hint = _HINTS.get(error.code())
    return f"{in_words(error)}: {hint}" if hint else in_words(error)


def describe(error: BaseException) -> str:
    """A client's exception in words."""
    inner = known(error)
    return in_words(inner) if inner is not None else str(error) or type(error).__name__


def refusal(where: str, error: KafkaError) -> BrokerError:
    """The error that ends a run: what happened and where, what is safe, what to do."""
    advice = _ADVICE.get(_cause(error), "Look at the brokers' logs, then start again")
    return BrokerError(f"{where}: {in_words(error)}. What is committed is safe. {advice}.")


def _cause(error: KafkaError) -> int:
    """The code of an error; of a fatal one that arrives as an event, the code that its words stand for."""
    if error.code() != KafkaError._FATAL:
        return error.code()
    return next((code for code in _ADVICE if ck.KafkaError(code).str() in error.str()), KafkaError._FATAL)
