"""What `dg scaffold defs orchestration.components.KafkaConsumer consumers/<name>` writes."""

from typing import Any

import dagster as dg

TEMPLATE = """\
# A consumer: the folder's name is its name, its staged table is <tables>/staged/<name>.
# `{{ env.NAME }}` inside a string is that environment variable.
type: orchestration.components.KafkaConsumer

attributes:
  topic: NAME
  format: json                     # json | raw (one column, binary or string, with the record's value)
  schema:                          # name: type, or name: {type: ..., nullable: false}
    id: {type: long, nullable: false}
    # string boolean byte short integer long float double decimal(p,s) date timestamp binary
  window: day                      # hour | day, by the record's timestamp; or {every: day, field: <column>, first: 2024-01-01}

  # The rest may stay away; these are the defaults.
  # description: what the records are
  # owners: [team:data]
  # batch: {max_records: 200000, max_bytes: 67108864, max_latency_seconds: 10}   # the first limit reached commits
  # start: earliest                # | latest | 2026-01-31T00:00:00Z: where to begin while nothing is committed
  # invalid_records: {max_ratio: 1.0}   # beyond this share of a batch the consumer stops instead of writing dead letters
  # on_data_loss: fail             # | record: go on after offsets were lost to retention, and let a check show it
  # members: 1                     # runs side by side; at most one per partition has work
  # mode: continuous               # | on_lag: a run only while records wait
  # max_run_seconds: 1800          # a member hands over to the next after this long
  # autostart: false               # true: the sensor keep_<name> starts switched on
"""


class KafkaConsumerScaffolder(dg.Scaffolder[Any]):
    """Writes a commented `defs.yaml`."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the file. Raises ValueError for `--format python`: a consumer is YAML, which the commands read too."""
        if request.scaffold_format != "yaml":
            raise ValueError("a consumer is defined in YAML: leave --format away")
        request.target_path.mkdir(parents=True, exist_ok=True)
        text = TEMPLATE.replace("topic: NAME", f"topic: {request.target_path.name}")
        (request.target_path / "defs.yaml").write_text(text, encoding="utf-8")
