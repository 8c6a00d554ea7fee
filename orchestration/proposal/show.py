"""What was seen and proposed, for a terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestration.printable import printable
from orchestration.proposal.draft import Draft
from orchestration.proposal.propose import Definition


def show(definition: Definition, out: Console) -> None:
    """Print it, or why nothing was proposed."""
    if definition.draft is None:
        out.print(printable(definition.why_plain), markup=False)
    else:
        _show(definition.draft, out)


def _show(draft: Draft, out: Console) -> None:
    for line in draft.seen:
        out.print(printable(line), markup=False)
    table = Table("column", "type", "nullable", "example", "")
    for name, column in draft.config.columns.items():
        proposed = draft.columns.get(name)
        example, note = (proposed.example, proposed.note) if proposed else ("", "")
        kind = column.type if column.path is None else f"{column.type}, path {column.path}"
        table.add_row(name, _plain(kind), "yes" if column.nullable else "no", _plain(example), _plain(note))
    out.print(table)
    window = draft.config.window
    by = "the record's timestamp" if window.field is None else window.field
    out.print(f"window: {window.every} by {by}: {printable(draft.window_why)}", markup=False)
    out.print(f"batch: {draft.batch_why}", markup=False)


def _plain(text: str) -> Text:
    """Nothing of it is markup."""
    return Text(printable(text))
