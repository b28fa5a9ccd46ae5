"""Fixtures: one headless Chromium per test file, restricted to 127.0.0.1."""

import os
import shutil
import urllib.parse
from contextlib import contextmanager

import pytest

PATIENCE = 300_000  # milliseconds: a busy machine is slow, and nothing is measured here
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def missing(reason):
    """Without a browser a developer skips; CI must not."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


# Of a file and not the session: while it is open, an event loop runs on this thread.
@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make test")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        missing("needs Chromium: apt install chromium")
    # Only root needs it: Chromium refuses to start as root otherwise.
    alone = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        loaded = playwright.chromium.launch(executable_path=chromium, args=FLAGS + alone)
        yield loaded
        loaded.close()


class Visit:
    """A page, and what went wrong on it."""

    def __init__(self, page, url):
        self.page = page
        self.url = url
        self.refused = []
        self.errors = []
        self.failed = []
        self.requests = []
        self.responses = []

    def go(self, view="attention", ready=None, **state):
        """Open a view with a state, as a permalink does, and wait until it is drawn."""
        state = {"view": view, **state}
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/#{urllib.parse.urlencode(state)}")
        if ready:
            self.page.wait_for_selector(ready)
        return self.page

    def numbers(self, selector, attribute="data-value"):
        """The exact numbers behind the displayed ones."""
        script = f"all => all.map(each => each.getAttribute('{attribute}'))"
        return [
            float(text.replace("Infinity", "inf"))
            for text in self.page.eval_on_selector_all(selector, script)
        ]


@contextmanager
def visiting(browser, url, check=True, **settings):
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    visit = Visit(page, url)

    def guard(route):
        address = urllib.parse.urlsplit(route.request.url)
        if address.hostname in {"127.0.0.1", None}:
            route.continue_()
        else:
            visit.refused.append(route.request.url)
            route.abort()

    page.route("**/*", guard)
    page.on("request", lambda request: visit.requests.append(request.url))
    page.on("response", lambda response: visit.responses.append((response.status, response.url)))
    # Requests that the page aborts to send others have not failed.
    page.on(
        "requestfailed",
        lambda request: (
            visit.failed.append(request.url) if request.failure != "net::ERR_ABORTED" else None
        ),
    )
    page.on("pageerror", lambda error: visit.errors.append(str(error)))
    page.on(
        "console",
        lambda message: visit.errors.append(message.text) if message.type == "error" else None,
    )
    try:
        yield visit
    finally:
        context.close()
    if check:
        assert visit.refused == []
        assert visit.errors == []


@pytest.fixture
def new_page(browser):
    """Opens a page with settings of its own, such as `offline`, for files without a server."""
    contexts = []

    def open_page(**settings):
        contexts.append(browser.new_context(**settings))
        contexts[-1].set_default_timeout(PATIENCE)
        return contexts[-1].new_page()

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def visit(browser, explorer_server):
    with visiting(browser, explorer_server.url) as loaded:
        yield loaded


@pytest.fixture
def open_visit(browser, explorer_server):
    """A visit with its own settings: width, theme, motion."""
    return lambda **settings: visiting(browser, explorer_server.url, **settings)


@pytest.fixture
def visit_at(browser):
    """A visit to a server of the test's own."""
    return lambda url, **settings: visiting(browser, url, **settings)
