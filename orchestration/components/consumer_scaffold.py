"""What `dg scaffold defs orchestration.components.KafkaConsumer consumers/<name>` writes: the same as `weir new consumer`."""

import dagster as dg
from pydantic import BaseModel, Field
from rich.console import Console

from consumers.clock import SystemClock
from consumers.errors import BrokerError
from orchestration.proposal.connect import reader
from orchestration.proposal.propose import definition, write
from orchestration.proposal.show import show
from orchestration.settings import Settings


class KafkaConsumerParams(BaseModel):
    """The options of the scaffolding command."""

    topic: str | None = Field(default=None, description="the Kafka topic; default: the folder's name")
    records: int = Field(default=1000, ge=2, description="how many to look at, from both ends of the topic")
    plain: bool = Field(default=False, description="do not look at the topic: write the template")


class KafkaConsumerScaffolder(dg.Scaffolder[KafkaConsumerParams]):
    """Writes a commented `defs.yaml`, proposed from the topic where that can be read."""

    @classmethod
    def get_scaffold_params(cls) -> type[KafkaConsumerParams]:
        """The options."""
        return KafkaConsumerParams

    def scaffold(self, request: dg.ScaffoldRequest[KafkaConsumerParams]) -> None:
        """Write the file. Raises ValueError for `--format python`: a consumer is YAML, which the commands read too."""
        if request.scaffold_format != "yaml":
            raise ValueError("a consumer is defined in YAML: leave --format away")
        settings, name, params = Settings.load(), request.target_path.name, request.params
        topic = params.topic or name
        connect, why_not = (None, "Written with --plain.") if params.plain else reader(topic, settings)
        clock = SystemClock()
        try:
            found = definition(topic, connect, why_not, clock, params.records)
        except BrokerError as error:
            # The folder is there already, so that the command could not be given again.
            found = definition(topic, None, f"Nothing is proposed. {error}", clock)
        show(found, Console(highlight=False, soft_wrap=True))
        write(request.target_path.parent, name, found.text, settings)
