"""The course as files: every page from a disk and from a sub path of a web server, offline."""

import functools
import http.server
import threading

import pytest

from clearformer.explore import static_requests, static_site

PAGES = {
    "home": "#model-picture .strip", "attention": "table.ladder td[data-value]",
    "norm": "#component", "mlp": "#unit", "order": "#verdict-on [data-error]",
    "generate": "#bars tr[data-p]", "compress": "[data-part=sizes] tr[data-p]",
    "training": "#summary", "stream": "table.lens", "reach": "[data-count]",
    "compare": "[data-kl]", "space": "#near td",
    "architectures": ".three section:nth-child(3) [data-output]",
}  # fmt: skip
TASKS = {"classifier": "table.why td[data-value]", "bert": "[data-total]", "original": "#rowsum"}
BEAMS = {("gpt2", "generate"), ("original", "tasks")}  # a search needs the server, and says so
QUIET = "() => !document.querySelector('.ghost, .wait')"
NOT_HELD = "Run clearformer explore to see it"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def site(tiny_runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("web") / "sub" / "course"
    folder.parent.mkdir()
    runs = [tiny_runs / kind for kind in ("gpt2", *TASKS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(static_requests, "MAX_PROJECTIONS", 100)  # fewer answers, the same kinds
        static_site.write(folder, runs, text=["the cat", "a film"])
    return folder


@pytest.fixture(params=["file", "http"])
def address(request, site):
    if request.param == "file":
        yield (site / "index.html").as_uri()
        return
    handler = functools.partial(Quiet, directory=site.parents[1])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/sub/course/"
    server.shutdown()
    server.server_close()


def test_every_page_shows_its_numbers(new_page, address):
    page = new_page(offline=address.startswith("file"))
    errors, asked = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda each: errors.append(each.text) if each.type == "error" else None)
    page.on("request", lambda each: asked.append(each.url))
    pages = [("gpt2", view, ready) for view, ready in PAGES.items()]
    pages += [(kind, "tasks", ready) for kind, ready in TASKS.items()]
    for kind, view, ready in pages:
        page.goto("about:blank")
        page.goto(f"{address}#view={view}&model={kind}")
        page.wait_for_selector(ready)
        page.wait_for_function(QUIET)
        assert page.locator("[role=alert]").count() == 0, (kind, view)
        if (kind, view) not in BEAMS:
            assert NOT_HELD not in page.inner_text("main"), (kind, view)
    root = address.removesuffix("index.html")
    assert [url for url in asked if not url.startswith((root, "data:", "about:"))] == []
    assert errors == []


def test_reader_chooses_text_head_language_and_page(new_page, site):
    page = new_page(offline=True)
    page.goto(f"{(site / 'index.html').as_uri()}#view=attention&model=gpt2")
    page.wait_for_selector("table.ladder td[data-value]")
    page.select_option("#text", "a film")
    page.wait_for_function("() => location.hash.includes('film')")
    page.select_option("#language", "es")
    page.wait_for_selector("html[lang=es]")
    page.wait_for_selector("nav a:has-text('Comparar')")
    page.click("nav a:has-text('Comparar')")
    page.wait_for_selector("[data-kl]")
    assert "a film" in page.input_value("#text")
    # What they do not hold is said in one sentence.
    page.goto("about:blank")
    page.goto(f"{(site / 'index.html').as_uri()}#view=attention&model=gpt2&text=another&lang=en")
    page.wait_for_selector(f"main :text('{NOT_HELD}')")
    assert page.locator("[role=alert]").count() == 0
