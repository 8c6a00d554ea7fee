"""What Dagster loads: what is in `orchestration/defs`, the topics that consumers share, the table of all consumers, resources."""

import dagster as dg

from orchestration.catalog import consumers
from orchestration.components.consumer_assets import topic_assets
from orchestration.maintenance.assets import maintained, maintenance_definitions
from orchestration.platform_asset import consumers_asset
from orchestration.resources.kafka import KafkaResource
from orchestration.sensors.repair import repair_sensor
from orchestration.sensors.topics import topics_sensor
from orchestration.settings import Settings


@dg.definitions
def defs() -> dg.Definitions:
    """Raises ConfigError with file and line for a consumer whose YAML is wrong."""
    settings = Settings.load()
    known = consumers(settings).values()
    shared = dg.Definitions(
        assets=[*topic_assets(known), consumers_asset()],
        sensors=[topics_sensor(known), repair_sensor(known)],
        resources={"kafka": KafkaResource()},
    )
    loaded = dg.load_from_defs_folder(path_within_project=settings.project)
    return dg.Definitions.merge(shared, loaded, maintenance_definitions(maintained(loaded)))
