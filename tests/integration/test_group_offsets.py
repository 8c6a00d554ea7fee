"""What a group has committed can be asked at any time: on a cluster whose coordinator is only starting, too."""

import subprocess
import sys
from pathlib import Path

import pytest

from orchestration.samples.topics import create_topics
from tests.kafka_fixture import kafka

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ASKING = """
import sys
from concurrent.futures import ThreadPoolExecutor
from consumers.brokers.admin import KafkaAdmin
from consumers.brokers.options import KafkaOptions

def ask(number):
    admin = KafkaAdmin(KafkaOptions(sys.argv[1]), timeout=20.0)
    return [admin.group_offsets(f"group-{number}-{each}", "flights") for each in range(10)]

with ThreadPoolExecutor(8) as threads:
    assert list(threads.map(ask, range(8))) == [[{}] * 10] * 8
"""


def test_asking_for_group_offsets_while_the_coordinator_starts_answers_and_does_not_end_the_process(tmp_path: Path) -> None:
    with kafka(tmp_path) as bootstrap_servers:
        create_topics(bootstrap_servers)
        # A process of its own: librdkafka's way to fail here was a segmentation fault.
        done = subprocess.run([sys.executable, "-c", ASKING, bootstrap_servers], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
