"""What an operator does in Dagster's UI (1.13), as functions of a page. Each waits until the page is as it says."""

import re
from dataclasses import dataclass

from playwright.sync_api import Locator, Page, expect

PATIENCE_MILLISECONDS = 60_000


def open_asset(page: Page, url: str, *key: str) -> None:
    """An asset's page."""
    page.goto(f"{url}/assets/{'/'.join(key)}")
    _soon(page.get_by_text("Definition", exact=True))


def open_window(page: Page, url: str, window: str, *key: str) -> None:
    """A partition of an asset, with its newest event."""
    page.goto(f"{url}/assets/{'/'.join(key)}?view=partitions&partition={window}")
    _soon(page.get_by_text("Latest materialization", exact=True))


@dataclass(frozen=True)
class Node:
    """An asset in the graph: what stands on it, and how far it is from the left."""

    text: str
    x: float


def open_group(page: Page, url: str, group: str, assets: int) -> list[Node]:
    """The graph of a group, once it shows so many assets; from left to right."""
    page.goto(f"{url}/locations/weir/asset-groups/{group}/lineage")
    shown = page.locator("foreignObject").filter(has_text="Latest event")
    expect(shown).to_have_count(assets, timeout=PATIENCE_MILLISECONDS)
    found = shown.evaluate_all("all => all.map(node => [node.textContent, node.getBoundingClientRect().x])")
    return sorted((Node(str(text), float(x)) for text, x in found), key=lambda node: node.x)


def show_plots(page: Page, url: str, *key: str) -> list[str]:
    """The plots of an asset by event; the names of the metadata that have one.

    By partition, the page's first choice, it looks at the last 120 partitions alone, which data of a bygone year leaves empty.
    """
    open_asset(page, url, *key)
    page.get_by_text("Plots", exact=True).first.click()
    _button(page.locator("body"), "Events").click()
    _soon(page.locator("canvas"))
    named = "canvas => { let at = canvas; while (!at.innerText) at = at.parentElement; return at.innerText; }"
    return [str(plot.evaluate(named)) for plot in page.locator("canvas").all()]


def launch_backfill(page: Page, url: str, partitions: str, *key: str) -> None:
    """Launch a backfill in the dialog of an asset; `partitions` as the dialog takes them: `[2013-01-01...2013-01-03]`."""
    open_asset(page, url, *key)
    _button(page.locator("body"), "Materialize").click()
    dialog = page.get_by_role("dialog")
    chosen = dialog.locator("input[type=text]").first
    _soon(chosen)
    # Of many partitions it shows the last 90 days at first, and takes no others.
    if (everything := dialog.get_by_text("Show all partitions")).count():
        everything.click()
        expect(everything).to_have_count(0, timeout=PATIENCE_MILLISECONDS)
    chosen.fill(partitions)
    chosen.press("Enter")
    launch = _button(dialog, "Launch")
    expect(launch).to_be_enabled(timeout=PATIENCE_MILLISECONDS)
    launch.click()
    expect(dialog).to_have_count(0, timeout=PATIENCE_MILLISECONDS)


def launch_job(page: Page, url: str, job: str, config: str) -> str:
    """Launch a job from its launchpad with this configuration (YAML); the id of the run."""
    page.goto(f"{url}/locations/weir/jobs/{job}/playground")
    _soon(page.locator(".CodeMirror"))
    page.evaluate("text => document.querySelector('.CodeMirror').CodeMirror.setValue(text)", config)
    # Green only when Dagster has checked what is there now.
    _soon(page.get_by_text("No errors", exact=True))
    launch = page.get_by_role("button", name="Launch Run")
    expect(launch).to_be_enabled(timeout=PATIENCE_MILLISECONDS)
    launch.click()
    page.wait_for_url(re.compile("/runs/"), timeout=PATIENCE_MILLISECONDS)
    return page.url.rpartition("/")[2].partition("?")[0]


def output_of(page: Page, url: str, run: str) -> dict[str, str]:
    """What the newest step output of a run that is over tells, as `View full message` shows it: key → value."""
    page.goto(f"{url}/runs/{run}")
    step = page.locator("div").filter(has=page.get_by_text("STEP_OUTPUT", exact=True)).filter(has_text="View full message").last
    step.get_by_text("View full message").click(timeout=PATIENCE_MILLISECONDS)
    shown = page.get_by_role("dialog")
    _soon(shown.get_by_text("STEP_OUTPUT"))
    pairs = "all => all.filter(row => row.cells.length == 2).map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    return dict(shown.locator("tr").evaluate_all(pairs))


def terminate_run(page: Page, url: str, run: str) -> None:
    """Terminate a run from its page."""
    page.goto(f"{url}/runs/{run}")
    page.get_by_role("button", name="Terminate").first.click(timeout=PATIENCE_MILLISECONDS)
    page.get_by_role("dialog").get_by_role("button", name="Terminate 1 run").click(timeout=PATIENCE_MILLISECONDS)


def switch_sensor(page: Page, url: str, sensor: str, on: bool) -> None:
    """Switch a sensor on or off on its page; it is the other way round before."""
    page.goto(f"{url}/locations/weir/sensors/{sensor}")
    switch = page.locator("label", has=page.locator("input[type=checkbox]")).first
    box = switch.locator("input")
    expect(box).to_be_checked(checked=not on, timeout=PATIENCE_MILLISECONDS)
    # The switch shows what was asked for before it is so, and leaving the page then takes the question back.
    with page.expect_response(lambda answer: "mutation" in (answer.request.post_data or ""), timeout=PATIENCE_MILLISECONDS):
        switch.click()
    expect(box).to_be_checked(checked=on, timeout=PATIENCE_MILLISECONDS)


def value_of(page: Page, name: str) -> Locator:
    """The cell of a metadata key on an asset's page: key, time, value."""
    return _row(page, name).get_by_role("cell").last


def value_of_event(page: Page, name: str) -> Locator:
    """The same where an event is shown: key, value, what can be done."""
    return _row(page, name).get_by_role("cell").nth(1)


def _row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_text(name, exact=True))


def _button(within: Locator, text: str) -> Locator:
    """By what stands on it first; its accessible name begins with its icon's."""
    return within.get_by_role("button").filter(has_text=re.compile(f"^{text}")).first


def _soon(found: Locator) -> None:
    expect(found.first).to_be_visible(timeout=PATIENCE_MILLISECONDS)
