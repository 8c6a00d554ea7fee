"""A definition as the YAML that people edit: with comments that say what each key is for, and what a proposal rests on."""

import json
import re
from collections.abc import Iterable

import yaml

from consumers.config import BatchLimits, Column, Window
from orchestration.catalog import COMPONENT_TYPE
from orchestration.printable import printable
from orchestration.proposal.draft import Draft

_TYPES = "string boolean byte short integer long float double decimal(p,s) date timestamp binary"
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_HEAD = """\
# A consumer: the folder's name is its name, its staged table is <tables>/staged/<name>.
# `{{ env.NAME }}` inside a string is that environment variable.
"""
_PLAIN_BODY = """\
  format: json                     # json | raw (one column, binary or string, with the record's value)
  schema:                          # name: type, or name: {type: ..., nullable: false}
    id: {type: long, nullable: false}
  window: day                      # hour | day, by the record's timestamp; or {every: day, field: <column>, first: 2024-01-01}
"""
_ALSO = """
  # docs/consumers.md has more; of these, take what is wanted:
  # topics: [orders.eu, orders.us]                                # instead of topic: several into one table
  # topic_pattern: 'orders\\..*'                                   # instead of topic: all that are there, and those that come
  # where: {column: carrier, in: [UA, AA]}                        # or not_in: only these records
  # split: {column: carrier, tables: {united: [UA], others: []}}  # several tables from one topic, each a consumer
  # transform: transforms.orders.in_cents                         # a function between reading and the table
  # Columns may come from elsewhere: {type: long, path: order.id}, {type: string, header: tenant}, {type: long, key: true}.
"""
_DEFAULTS = {
    "description": ("what the records are", ""),
    "owners": ("[team:data]", ""),
    "group": ("weir-<name>", "the Kafka consumer group"),
    "batch": (
        "{max_records: 200000, max_bytes: 67108864, max_latency_seconds: 10.0}",
        "the first limit reached commits",
    ),
    "start": ("earliest", "| latest | 2026-01-31T00:00:00Z: where to begin while nothing is committed"),
    "invalid_records": ("{max_ratio: 1.0}", "beyond this share of a batch it stops instead of writing dead letters"),
    "show_values": ("false", "true: samples of dead letters show their values in Dagster"),
    "keep_raw": ("false", "true: keep each record's bytes, so that windows can be rebuilt whatever retention took"),
    "on_data_loss": ("fail", "| record: go on after offsets were lost to retention, and let a check show it"),
    "members": ("1", "runs side by side; at most one per partition has work"),
    "mode": ("continuous", "| on_lag: a run only while records wait | scheduled, with schedule: '0 * * * *'"),
    "lag": ("{warn_seconds: 600.0, fail_seconds: 3600.0}", "how old the oldest waiting record may be"),
    "max_run_seconds": ("1800", "a member hands over to the next after this long"),
    "autostart": ("false", "true: the sensor keep_<name> starts switched on"),
}


def plain(topic: str, why: str) -> str:
    """The definition to fill in by hand; `why` says why nothing is proposed."""
    head = f"{_HEAD}# {printable(' '.join(why.split()))}\ntype: {COMPONENT_TYPE}\n"
    return f"{head}\nattributes:\n  topic: {_scalar(topic)}\n{_PLAIN_BODY}{_rest(())}"


def proposed(draft: Draft, when: str) -> str:
    """The proposed definition; `when` is the day of the sample."""
    config = draft.config
    seen = "".join(f"#   {printable(line)}\n" for line in draft.seen)
    body = [
        f"  topic: {_scalar(config.topic)}",
        f"  format: {config.format}",
        f"  schema:  # types: {_TYPES}",
        *_columns(draft),
        f"  # {printable(draft.window_why)}",
        f"  window: {_window(config.window)}  # hour | day; first and last: the days between which Dagster has partitions",
        f"  # {draft.batch_why}; a batch is committed at the first limit that it reaches",
        f"  batch: {_batch(config.batch)}",
    ]
    head = f"{_HEAD}#\n# Proposed on {when} from what the topic held:\n{seen}"
    return f"{head}type: {COMPONENT_TYPE}\n\nattributes:\n" + "\n".join(body) + "\n" + _rest(("batch",))


def _columns(draft: Draft) -> Iterable[str]:
    lines = [(f"    {_scalar(name)}: {_column(column)}", _note(draft, name)) for name, column in draft.config.columns.items()]
    width = min(60, max(len(line) for line, _ in lines))
    return [f"{line:<{width}}  # {note}" if note else line for line, note in lines]


def _note(draft: Draft, name: str) -> str:
    return printable(draft.columns[name].note) if name in draft.columns else ""


def _column(column: Column) -> str:
    if column.nullable and column.path is None:
        return column.type if "(" not in column.type else json.dumps(column.type)
    parts = [f"type: {json.dumps(column.type) if '(' in column.type else column.type}"]
    parts += [] if column.path is None else [f"path: {_scalar(column.path)}"]
    parts += [] if column.nullable else ["nullable: false"]
    return "{" + ", ".join(parts) + "}"


def _window(window: Window) -> str:
    field = "" if window.field is None else f", field: {_scalar(window.field)}"
    first = "" if window.first is None else f", first: {window.first}"
    last = "" if window.last is None else f", last: {window.last}"
    return f"{{every: {window.every}{field}{first}{last}}}" if field or first else window.every


def _batch(batch: BatchLimits) -> str:
    limits = {"max_records": batch.max_records, "max_bytes": batch.max_bytes, "max_latency_seconds": batch.max_latency_seconds}
    return "{" + ", ".join(f"{name}: {value}" for name, value in limits.items()) + "}"


def _scalar(text: str) -> str:
    """Text as YAML reads it back: quoted where it would be something else, such as the topics `1` and `no`."""
    return text if _WORD.fullmatch(text) and yaml.safe_load(text) == text else json.dumps(text)


def _rest(without: Iterable[str]) -> str:
    """The other keys, as comments."""
    lines = [
        f"  # {f'{key}: {value}':<31}{f' # {meaning}' if meaning else ''}".rstrip()
        for key, (value, meaning) in _DEFAULTS.items()
        if key not in without
    ]
    return f"{_ALSO}\n  # The rest may stay away; these are the defaults.\n" + "\n".join(lines) + "\n"
