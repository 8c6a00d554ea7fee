"""Options and membership settings become the client's configuration, and never what would break a promise."""

import confluent_kafka as ck
import pytest

from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions, OAuthToken
from consumers.errors import BrokerError
from consumers.membership import GroupSettings

SECRETS = {
    "sasl.password": "hunter2",
    "ssl.key.pem": "-----BEGIN",
    "ssl.keystore.password": "k3y",
    "sasl.oauthbearer.client.secret": "s3cret",
    "sasl.username": "weir",
}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (GroupSettings(), {"partition.assignment.strategy": "cooperative-sticky", "max.poll.interval.ms": 300_000}),
        (GroupSettings(protocol="eager"), {"partition.assignment.strategy": "range"}),
        (GroupSettings(protocol="eager", assignor="roundrobin"), {"partition.assignment.strategy": "roundrobin"}),
        (GroupSettings(protocol="consumer"), {"group.protocol": "consumer"}),
        (
            GroupSettings(protocol="consumer", assignor="uniform", instance_id="i", rack="r"),
            {"group.remote.assignor": "uniform", "group.instance.id": "i", "client.rack": "r"},
        ),
        (
            GroupSettings(session_seconds=6.5, heartbeat_seconds=0.5, max_poll_seconds=7, refresh_seconds=1),
            {
                "session.timeout.ms": 6_500,
                "heartbeat.interval.ms": 500,
                "max.poll.interval.ms": 7_000,
                "topic.metadata.refresh.interval.ms": 1_000,
            },
        ),
    ],
)
def test_membership_settings_reach_the_client(settings: GroupSettings, expected: dict[str, object]) -> None:
    found = KafkaOptions("localhost:1").member("g", "c", settings)
    assert expected.items() <= found.items()
    ck.Consumer(found).close()  # the client takes them all


@pytest.mark.parametrize("protocol", ["eager", "cooperative", "consumer"])
def test_nothing_is_committed_or_reset_by_itself_and_only_what_is_committed_is_read(protocol: str) -> None:
    found = KafkaOptions("localhost:1").member("g", "c", GroupSettings.model_validate({"protocol": protocol}))
    assert (found["enable.auto.commit"], found["enable.auto.offset.store"]) == (False, False)
    assert (found["auto.offset.reset"], found["isolation.level"]) == ("error", "read_committed")


def test_under_the_consumer_protocol_nothing_of_the_client_speaks_of_sessions() -> None:
    found = KafkaOptions("localhost:1").member("g", "c", GroupSettings(protocol="consumer"))
    assert not {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"} & found.keys()


@pytest.mark.parametrize("name", ["auto.offset.reset", "group.id", "partition.assignment.strategy", "group.protocol"])
def test_an_option_that_would_break_a_promise_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} cannot be set: .+"):
        KafkaOptions("localhost:1", {name: "x"})


def test_an_option_that_the_brokers_decide_is_refused_under_the_consumer_protocol() -> None:
    options = KafkaOptions("localhost:1", {"session.timeout.ms": "6000"})
    assert options.member("g", "c", GroupSettings())["session.timeout.ms"] == "6000"
    with pytest.raises(ValueError, match=r"session\.timeout\.ms cannot be set .*group\.consumer\.session\.timeout\.ms"):
        options.member("g", "c", GroupSettings(protocol="consumer"))


def test_no_secret_is_shown() -> None:
    options = KafkaOptions("localhost:1", SECRETS, oauth=lambda: OAuthToken("t0ken", 0.0))
    shown = repr(options) + repr(OAuthToken("t0ken", 0.0)) + options.without_secrets(f"refused: {SECRETS}")
    assert "weir" in shown
    assert not [value for name, value in SECRETS.items() if value in shown and name != "sasl.username"]
    assert "t0ken" not in shown


@pytest.mark.parametrize(
    ("name", "value", "said"), [("sasl.pasword", "x", "sasl.pasword"), ("acks.token", "hunter2", "acks.token")]
)
def test_an_option_that_the_client_does_not_know_is_an_error_that_names_it(name: str, value: str, said: str) -> None:
    with pytest.raises(BrokerError, match=f"no client for Kafka at localhost:1 could be made: .*{said}.* Look at the") as raised:
        KafkaAdmin(KafkaOptions("localhost:1", {name: value}))
    assert "hunter2" not in str(raised.value)


def test_a_cluster_that_cannot_be_reached_is_an_error_with_what_the_client_says() -> None:
    with pytest.raises(
        BrokerError, match=r"Kafka at 127\.0\.0\.1:1 did not tell topic 't': .*; the client says: .*Connection refused|down"
    ):
        KafkaAdmin(KafkaOptions("127.0.0.1:1"), timeout=0.5).topic_id("t")
