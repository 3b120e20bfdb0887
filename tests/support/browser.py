"""The studio's page in a browser."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a browser, or skip the test."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium")
    api = pytest.importorskip("playwright.sync_api")
    flags = (
        "no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-component-update disable-sync"
    )
    with api.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=[f"--{flag}" for flag in flags.split()])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, url: str, width: int = 360) -> Iterator[Any]:
    """Open the page, at the width of a phone by default; afterwards require that no script failed and nothing overflows."""
    page = browser.new_page(viewport={"width": width, "height": 740})
    mistakes: list[str] = []
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.goto(url)
    page.wait_for_selector("body[data-ready]")
    yield page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
    assert not mistakes


def run(page: Any, view: str) -> None:
    page.click(f"#form-{view} .run")
    page.wait_for_selector(f"#form-{view}:not([aria-busy])", timeout=20_000)


def reload(page: Any) -> None:
    page.reload()
    page.wait_for_selector("body[data-ready]")


def wait_for_frames(page: Any, count: int) -> None:
    """Until the chain has that many states: the page's own policy forbids Playwright's wait_for_function."""
    start = time.monotonic()
    while page.evaluate("chain.frames.length") <= count:
        assert time.monotonic() - start < 20
        page.wait_for_timeout(20)


def choose_model(page: Any, name: str) -> None:
    page.select_option("#model", name)
    page.wait_for_selector(f"body[data-model={name}]")
