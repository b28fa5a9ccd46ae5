"""Downloads from a local server that truncates, alters, forgets and rejects."""

import hashlib
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from clearformer.data import download
from clearformer.data.download import Pinned, fetch, require_pinned

CONTENT = bytes(i * i % 251 for i in range(100_000))


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "TIMEOUT", 60.0)


@contextmanager
def serve(answer):
    """A server whose `answer(handler, start)` writes the reply to a request from byte `start`."""
    starts = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers.get("Range", "bytes=0-")
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            starts.append(start)
            answer(self, start)
            self.close_connection = True

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/file", starts
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reply(handler, start, content=CONTENT, upto=None, ranges=True):
    """A correct reply, unless it stops at byte `upto` or does not support ranges."""
    start = start if ranges else 0
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    handler.send_header("Content-Length", str(len(content) - start))
    handler.end_headers()
    handler.wfile.write(content[start:upto])


def pinned(url):
    return Pinned("file.bin", url, len(CONTENT), (("sha256", hashlib.sha256(CONTENT).hexdigest()),))


def test_downloads_file_with_progress(tmp_path):
    said = []
    with serve(reply) as (url, starts):
        path = fetch(pinned(url), tmp_path / "new", lambda done, total: said.append((done, total)))
        assert fetch(pinned(url), tmp_path / "new") == path  # it is there: no request
    assert starts == [0]
    assert path.read_bytes() == CONTENT
    assert said[-1] == (len(CONTENT), len(CONTENT))
    assert [each.name for each in path.parent.iterdir()] == ["file.bin"]


def test_resumes_interrupted_download(tmp_path):
    half = len(CONTENT) // 2
    with serve(lambda handler, start: reply(handler, start, upto=None if start else half)) as (
        url,
        starts,
    ):
        assert fetch(pinned(url), tmp_path).read_bytes() == CONTENT
    assert starts == [0, half]


def test_resumes_partial_file_of_killed_process(tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:777])
    with serve(reply) as (url, starts):
        assert fetch(pinned(url), tmp_path).read_bytes() == CONTENT
    assert starts == [777]


def test_restarts_when_server_ignores_ranges(tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 777)
    with serve(lambda handler, start: reply(handler, start, ranges=False)) as (url, _):
        assert fetch(pinned(url), tmp_path).read_bytes() == CONTENT


def test_discards_oversized_partial_file(tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT + b"x")
    with serve(reply) as (url, _):
        assert fetch(pinned(url), tmp_path).read_bytes() == CONTENT


def test_complete_partial_file_needs_no_network(tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    assert fetch(pinned("https://nowhere.invalid/"), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("place", [0, len(CONTENT) // 2, len(CONTENT) - 1])
def test_rejects_flipped_byte(tmp_path, place):
    altered = bytearray(CONTENT)
    altered[place] ^= 1
    with serve(lambda handler, start: reply(handler, start, bytes(altered))) as (url, _):
        sentence = (
            f"{url} is not the expected file: the download has another size or hash and was "
            f"deleted; "
            f"get the right one elsewhere and put it into {tmp_path} as file.bin"
        )
        with pytest.raises(ValueError, match=re.escape(sentence)):
            fetch(pinned(url), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_stops_reading_at_expected_size(tmp_path):
    with serve(lambda handler, start: reply(handler, start, CONTENT + b"more")) as (url, _):
        assert fetch(pinned(url), tmp_path).read_bytes() == CONTENT


def test_reports_connection_closed_early(tmp_path):
    with serve(lambda handler, start: reply(handler, start, upto=1000)) as (url, starts):
        sentence = (
            f"{url} could not be downloaded (the connection was closed; 1,000 of 100,000 "
            f"bytes received): try again, or get it elsewhere and put it into {tmp_path} as "
            f"file.bin"
        )
        with pytest.raises(ValueError, match=re.escape(sentence)):
            fetch(pinned(url), tmp_path)
    assert starts == [0, 1000, 1000, 1000]
    assert (tmp_path / "file.bin.part").read_bytes() == CONTENT[:1000]


def test_reports_missing_file_and_server(tmp_path):
    with (
        serve(lambda handler, start: handler.send_error(404)) as (url, _),
        pytest.raises(ValueError, match=r"could not be downloaded \(Not Found; 0 of 100,000 bytes"),
    ):
        fetch(pinned(url), tmp_path)
    with pytest.raises(ValueError, match=r"could not be downloaded \(.*refused.*; 0 of") as caught:
        fetch(pinned(url), tmp_path)
    assert "\n" not in str(caught.value)


def test_rejects_urls_other_than_https(tmp_path):
    for url in ("http://example.org/x", "ftp://127.0.0.1/x", "file:///etc/passwd"):
        with pytest.raises(
            ValueError, match=re.escape(f"{url} is not https: nothing is downloaded from it")
        ):
            fetch(pinned(url), tmp_path)

    def elsewhere(handler, start):
        handler.send_response(302)
        handler.send_header("Location", f"http://localhost:{handler.server.server_port}/other")
        handler.end_headers()

    def answer(handler, start):
        (elsewhere if handler.path == "/file" else reply)(handler, start)

    with serve(answer) as (url, _), pytest.raises(ValueError, match="is not https"):
        fetch(pinned(url), tmp_path)


def test_rejects_existing_file_with_other_hash(tmp_path):
    path = tmp_path / "file.bin"
    wanted = pinned("https://example.org/file")
    for wrong in (CONTENT[:-1], CONTENT[:-1] + b"x", b""):
        path.write_bytes(wrong)
        sentence = (
            f"{path}: it is damaged or another file ({len(wrong):,} bytes instead of 100,000 "
            f"with a known hash): delete it, and download it again from https://example.org/file"
        )
        with pytest.raises(ValueError, match=re.escape(sentence)):
            fetch(wanted, tmp_path)
    path.write_bytes(CONTENT)
    require_pinned(path, wanted)
