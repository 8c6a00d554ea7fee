"""The asset graph as an operator sees it: what leads to what, and that everything on it says what it is."""

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster import AssetSpec

from consumers.clock import ManualClock
from orchestration.components.consumer_assets import consumer_assets, freshness, partitions
from orchestration.definitions import defs
from orchestration.mirror_events import staged_key
from orchestration.mirror_marks import has_partition
from orchestration.resources.kafka import KafkaResource
from tests.orchestration.staged_tables import consumer_in

SNAPSHOT = Path(__file__).with_name("graph.txt")


@pytest.fixture(scope="module")
def specs() -> dict[str, AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in defs().resolve_all_asset_specs()}


def drawn(specs: dict[str, AssetSpec]) -> str:
    """An asset a line, from left to right: group, name, what it is, whose it is, what it comes from."""
    lines = [
        f"{spec.group_name:13} {name:26} [{', '.join(sorted(spec.kinds))}] {', '.join(spec.owners) or '-'}"
        + (f" <- {', '.join(sorted(dep.asset_key.to_user_string() for dep in spec.deps))}" if list(spec.deps) else "")
        for name, spec in specs.items()
    ]
    return "\n".join(sorted(lines)) + "\n"


def test_the_graph_is_the_one_that_was_looked_at(specs: dict[str, AssetSpec]) -> None:
    assert drawn(specs) == SNAPSHOT.read_text(encoding="utf-8"), f"where the new graph is right, put this into {SNAPSHOT.name}"


def test_every_asset_says_what_it_is(specs: dict[str, AssetSpec]) -> None:
    for name, spec in specs.items():
        assert spec.description and spec.group_name not in (None, "default") and spec.kinds, name


def test_every_table_says_where_it_is_what_defines_it_and_whose_it_is(specs: dict[str, AssetSpec]) -> None:
    for name, spec in specs.items():
        if "delta" not in spec.kinds:
            continue
        assert spec.owners, name
        assert str(spec.metadata["dagster/uri"]).startswith("file://") and spec.metadata["dagster/table_name"], name
        references = spec.metadata["dagster/code_references"]
        assert isinstance(references, dg.CodeReferencesMetadataValue)
        files = [r.file_path for r in references.code_references if isinstance(r, dg.LocalFileCodeReference)]
        assert all(Path(file).is_file() for file in files) and any(file.endswith("defs.yaml") for file in files), name


def test_a_jobs_asset_leads_to_its_function(specs: dict[str, AssetSpec]) -> None:
    references = specs["airport_delays"].metadata["dagster/code_references"]
    assert isinstance(references, dg.CodeReferencesMetadataValue)
    [function] = [r for r in references.code_references if r.label == "spark_jobs.airport_delays.airport_delays"]
    assert isinstance(function, dg.LocalFileCodeReference) and function.line_number is not None
    lines = Path(function.file_path).read_text(encoding="utf-8").splitlines()
    assert lines[function.line_number - 1].startswith("def airport_delays")


def test_a_column_says_where_it_is_read_from(tmp_path: Path) -> None:
    schema = {
        "id": "long",
        "city": {"type": "string", "path": "address.city"},
        "trace": {"type": "string", "header": "trace-id"},
        "account": {"type": "string", "key": True},
    }
    assets = consumer_assets(consumer_in(tmp_path, schema=schema))
    found = dg.Definitions(assets=assets, resources={"kafka": KafkaResource()}).resolve_all_asset_specs()
    [staged] = [spec for spec in found if spec.key == staged_key("orders")]
    shown = staged.metadata["dagster/column_schema"]
    assert isinstance(shown, dg.TableSchema)
    assert [column.description for column in shown.columns[:4]] == [
        "the field id of the record's value",
        "the field address.city of the record's value",
        "the record's last header 'trace-id'",
        "the record's key",
    ]


def test_data_that_ends_has_no_partitions_after_that_and_no_freshness(tmp_path: Path) -> None:
    ends = consumer_in(tmp_path, window={"every": "day", "first": "2013-01-01", "last": "2013-12-31"})
    assert len(partitions(ends).get_partition_keys()) == 365 and partitions(ends).get_last_partition_key() == "2013-12-31"
    clock = ManualClock(1_700_000_000)
    assert has_partition(ends, "2013-12-31", clock) and not has_partition(ends, "2014-01-01", clock)
    assert freshness(ends) is None


def test_a_table_is_stale_when_no_window_was_heard_of_for_a_window_and_the_lag_that_is_allowed(tmp_path: Path) -> None:
    hourly = consumer_in(tmp_path, window={"every": "hour"}, lag={"warn_seconds": 60, "fail_seconds": 30})
    policy = freshness(hourly)
    assert isinstance(policy, dg.FreshnessPolicy)
    assert policy == dg.FreshnessPolicy.time_window(
        warn_window=timedelta(seconds=3600 + 120 + 60), fail_window=timedelta(seconds=3600 + 120 + 120)
    )
