"""Membership settings that contradict themselves or the protocol are refused with what to do."""

from typing import Any

import pytest
from pydantic import ValidationError

from consumers.membership import GroupSettings


def test_the_defaults_are_cooperative_and_patient() -> None:
    settings = GroupSettings()
    assert (settings.protocol, settings.instance_id, settings.rack) == ("cooperative", None, None)
    assert settings.max_poll_seconds == 300


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"protocol": "sticky"}, "'eager', 'cooperative' or 'consumer'"),
        ({"assignor": "range"}, "the cooperative protocol has one only; leave it out"),
        ({"protocol": "eager", "assignor": "uniform"}, "'uniform' is none of range, roundrobin"),
        ({"protocol": "consumer", "session_seconds": 10}, "the brokers decide session and heartbeats"),
        ({"protocol": "consumer", "heartbeat_seconds": 1}, "the brokers decide session and heartbeats"),
        ({"session_seconds": 9, "heartbeat_seconds": 4}, "at most a third of the session, which is 9 s"),
        ({"heartbeat_seconds": 16}, "at most a third of the session, which is 45 s"),
        ({"max_poll_seconds": 30}, "at least the session, which is 45 s"),
        ({"instance_id": "a b"}, "instance_id"),
        ({"instance_id": ""}, "instance_id"),
        ({"session": 10}, "Extra inputs are not permitted"),
        ({"session_seconds": "10"}, "valid number"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        GroupSettings(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"protocol": "eager", "assignor": "roundrobin"},
        {"protocol": "consumer", "assignor": "uniform", "max_poll_seconds": 1},
        {"session_seconds": 6, "heartbeat_seconds": 2, "max_poll_seconds": 6, "rack": "eu-1a", "instance_id": "orders-0"},
    ],
)
def test_what_fits_is_taken(given: dict[str, Any]) -> None:
    assert GroupSettings(**given).model_dump(exclude_unset=True) == given


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        GroupSettings().protocol = "eager"
