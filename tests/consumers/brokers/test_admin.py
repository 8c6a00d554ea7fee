"""What is asked again, and what is an answer."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumers.brokers.admin import passing


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
