"""The Aim UI in a real browser: a finished, a running and a resumed job."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Page, TimeoutError, sync_playwright

from hpcplat import eventlog
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.runfolder import RunFolder
from hpcplat.tracking import MetricsWriter
from hpcplat.tracking.aimlink import aim_path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
]
PATIENCE = 60_000  # ms: Aim starts, and loads megabytes of script

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.skipif(find_spec("aim") is None, reason="Aim is not installed"),
]


def log(run: Path, steps: range, attempt: int = 1) -> None:
    run.mkdir(exist_ok=True)
    writer = MetricsWriter(run, attempt=attempt)
    for step in steps:
        writer.log({"loss": 5 / (step + 1), "lr": 0.1}, step=step)
    writer.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    log(folder / "alpha", range(50))
    log(folder / "beta", range(50))
    lost = RunEvent(EventKind.NODE_LOST, "node n2 is gone", 1)
    eventlog.append(RunFolder(folder / "beta").events, lost)
    log(folder / "beta", range(40, 90), attempt=2)
    log(folder / "gamma", range(50))
    long_ago = time.time() - 3600
    for path in (folder / "gamma").rglob("*"):
        os.utime(path, (long_ago, long_ago))
    return folder


@pytest.fixture(scope="module")
def address(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What `hpcplat ui` prints."""
    data = tmp_path_factory.mktemp("data")
    words = ["-m", "hpcplat.cli.main", "ui", "--no-browser", "--folder", str(runs)]
    with subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HPCPLAT_DATA": str(data)},
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        process.wait(30)
    left = subprocess.run(["pgrep", "-f", str(data)], check=False, capture_output=True)
    assert left.stdout == b""  # no collector, no Aim


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        opened = browser.new_page(viewport={"width": 1280, "height": 800})
        opened.set_default_timeout(PATIENCE)
        opened.goto(address)
        opened.wait_for_url(re.compile("/aim/local/"))
        yield opened
        browser.close()


@pytest.mark.parametrize(
    ("run", "state"),
    [("alpha", "In Progress"), ("beta", "In Progress"), ("gamma", "Finished")],
)
def test_charts_load(page: Page, address: str, run: str, state: str) -> None:
    base = address.partition("/aim/")[0]
    page.goto(base + aim_path(run, "/aim/local"))
    page.get_by_text(state, exact=True).first.wait_for()
    page.get_by_text("loss", exact=True).first.wait_for()
    page.locator("svg path[class*=Line]").first.wait_for(state="attached")


def test_restarts_and_failures_show(page: Page, address: str) -> None:
    base = address.partition("/aim/")[0] + aim_path("beta", "/aim/local")
    page.goto(base)
    page.get_by_text("hpcplat/failures").first.wait_for()
    page.get_by_text("superseded_by").first.wait_for()
    page.goto(base.replace("/metrics", "/messages"))
    page.get_by_text("node n2 is gone").first.wait_for()


def test_what_is_logged_now_is_seen_within_seconds(
    page: Page, address: str, runs: Path
) -> None:
    log(runs / "fresh", range(5))
    base = address.partition("/aim/")[0]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        page.goto(f"{base}/aim/local/runs")
        try:
            page.get_by_text("fresh").first.wait_for(timeout=5000)
        except TimeoutError:
            continue
        return
    pytest.fail("the run did not show")
