"""What is asked again, what is an answer, and what an error tells the operator."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumers.brokers.failures import describe, known, passing, refusal, undelivered


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_a_cluster_that_is_busy_with_itself_is_asked_again(code: int) -> None:
    assert passing(KafkaException(KafkaError(code)))


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._TRANSPORT])
def test_a_refusal_is_an_answer(code: int) -> None:
    assert not passing(KafkaException(KafkaError(code)))


def test_a_timeout_is_not_a_question_to_repeat() -> None:
    assert not passing(TimeoutError())


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Give the principal the right"),
        (KafkaError.INCONSISTENT_GROUP_PROTOCOL, "Stop all of them"),
        (KafkaError.UNSUPPORTED_VERSION, "membership: {protocol: cooperative}"),
        (KafkaError._AUTHENTICATION, "Look at the credentials"),
        (KafkaError.UNKNOWN, "Look at the brokers' logs"),
    ],
)
def test_an_error_says_what_is_safe_and_what_to_do(code: int, advice: str) -> None:
    said = str(refusal("t/0", KafkaError(code)))
    assert said.startswith("t/0: ")
    assert "What is committed is safe." in said
    assert advice in said


def test_a_fatal_event_is_advised_on_by_its_cause() -> None:
    cause = KafkaError(KafkaError.FENCED_INSTANCE_ID).str()
    said = str(refusal("topic 't'", KafkaError(KafkaError._FATAL, f"Fatal error: {cause}: it was fenced")))
    assert "Another member runs with the same instance id" in said


def test_an_error_without_words_has_its_kind() -> None:
    assert describe(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (KafkaError._UNKNOWN_TOPIC, "does not exist; create it"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "does not exist; create it"),
        (KafkaError._UNKNOWN_PARTITION, "fewer partitions; leave the partition out"),
    ],
)
def test_a_record_that_was_not_delivered_says_what_to_do(code: int, hint: str) -> None:
    assert hint in undelivered(KafkaError(code))


def test_a_fatal_error_is_found_behind_the_system_error_that_hides_it() -> None:
    wrapped = SystemError("<built-in function len> returned a result with an exception set")
    wrapped.__cause__ = SystemError("another")
    wrapped.__cause__.__cause__ = KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))
    found = known(wrapped)
    assert found is not None
    assert found.code() == KafkaError._FENCED
    assert known(SystemError("of something else")) is None
