"""The Training page: live curves from metrics.jsonl, and the stop button (V24, V25)."""

import json
import shutil

import pytest

from clearformer.runs.lock import Lock


@pytest.fixture
def growing(explorer_server, tiny, monkeypatch):
    monkeypatch.setattr("clearformer.explore.runs.SILENT_SECONDS", 1e9)
    folder = explorer_server.runs / "growing"
    shutil.copytree(explorer_server.runs / "generator", folder)
    (folder / "metrics.jsonl").unlink()
    (folder / "samples.jsonl").unlink(missing_ok=True)
    tiny.write_metrics(folder, 30)
    yield folder
    shutil.rmtree(folder)


def test_curves_follow_running_training(growing, visit, tiny):
    page = visit.go("training", run="growing", ready="#summary[data-step='30']")
    assert page.inner_text("#state").startswith("running")
    lines = (growing / "metrics.jsonl").read_text().splitlines()
    last = [line for line in map(json.loads, lines) if "event" not in line][-1]
    assert abs(visit.numbers("#summary", "data-loss")[0] - last["loss"]) < 1e-9
    before = len([url for url in visit.requests if "/metrics" in url])
    tiny.write_metrics(growing, 5, start=31)
    page.wait_for_selector("#summary[data-step='35']")
    assert visit.numbers("#summary", "data-points") == [35]
    # What was drawn is not asked for again.
    assert len([url for url in visit.requests if "/metrics" in url]) == before
    tiny.write_metrics(growing, 5, start=36, end=True)
    page.wait_for_selector("#summary[data-step='40']")
    page.wait_for_function("() => document.querySelector('#state').textContent.startsWith('ended')")


def test_model_without_a_run_waits_for_none(visit):
    """It has no metrics: the page names the runs, and leaves no panel empty."""
    page = visit.go("training", model="nan", ready="[data-part=runs] button")
    page.wait_for_function("() => !document.querySelector('.ghost, .wait')")
    assert page.locator("[data-part=loss]").count() == 0


def test_stop_button_confirms_and_creates_file(growing, visit):
    lock = Lock(growing)
    page = visit.go("training", run="growing", ready="#stop-run")
    page.click("#stop-run")
    assert not (growing / "stop").exists()
    page.click("#stop-sure")
    page.wait_for_selector("[role=status].note")
    assert (growing / "stop").exists()
    lock.release()


def test_stop_button_reports_no_running_training(growing, visit):
    page = visit.go("training", run="growing", ready="#stop-run")
    page.click("#stop-run")
    page.click("#stop-sure")
    page.wait_for_selector("[role=status].note")
    assert "nothing to stop" in page.inner_text("[role=status].note")
    assert not (growing / "stop").exists()
    (refusal,) = visit.errors  # the browser's own word about the answer
    assert "409" in refusal
    visit.errors.clear()


def test_checkpoints_can_be_played(visit):
    page = visit.go("training", run="gpt2", ready="#frame")
    page.wait_for_selector("[data-part=frames] [role=application]")
    first = page.inner_text("[data-part=frames] figcaption")
    page.focus("[data-part=frames] [role=application]")
    page.keyboard.press("ArrowDown")
    one = page.inner_text("[data-part=frames] figcaption")
    assert one != first
    page.focus("#frame")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "told => document.querySelector('[data-part=frames] figcaption').innerText !== told",
        arg=one,
    )


def test_page_reconnects_after_server_restart(visit_at, growing, tiny):
    """The browser reconnects by itself and sends the id of the last event."""
    with tiny.serving(growing.parent) as server:
        port = int(server.url.rsplit(":", 1)[1])
        loaded = visit_at(server.url, check=False)
        visit = loaded.__enter__()
        page = visit.go("training", run="growing", ready="#summary[data-step='30']")
        page.wait_for_timeout(300)
    before = len([url for url in visit.requests if "/metrics" in url])
    tiny.write_metrics(growing, 5, start=31)
    with tiny.serving(growing.parent, port):
        page.wait_for_selector("#summary[data-step='35']")
        assert visit.numbers("#summary", "data-points") == [35]
        assert len([url for url in visit.requests if "/metrics" in url]) == before
        loaded.__exit__(None, None, None)
