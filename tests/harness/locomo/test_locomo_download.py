"""The download: verified, whole or not at all, one line when it fails. The server is on loopback."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness.errors import DataError
from harness.locomo import download as module
from harness.locomo.download import download

BODY = b'[{"sample_id": "x"}]'
SHA256 = hashlib.sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    hits: list[str]

    def do_GET(self):
        self.hits.append(self.path)
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write({"/good": BODY, "/wrong": BODY[::-1], "/short": BODY[:7]}[self.path])

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    handler = type("Counting", (Handler,), {"hits": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", handler.hits
        running.shutdown()
        thread.join()


def test_a_good_file_is_fetched_once(server, tmp_path):
    url, hits = server
    target = tmp_path / "data" / "locomo10.json"
    assert download(target, url=f"{url}/good", sha256=SHA256) is True
    assert download(target, url=f"{url}/good", sha256=SHA256) is False
    assert target.read_bytes() == BODY
    assert [file.name for file in target.parent.iterdir()] == ["locomo10.json"]
    assert hits == ["/good"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/wrong", f" is not the expected file (its sha256 is not {SHA256[:12]}...); "),
        ("/missing", " answers 404; "),
        ("/short", " "),
    ],
)
@pytest.mark.parametrize("before", [None, b"an older file"])
def test_a_failure_leaves_things_as_they_were(server, tmp_path, path, says, before):
    url = server[0] + path
    target = tmp_path / "locomo10.json"
    if before:
        target.write_bytes(before)
    with pytest.raises(DataError) as caught:
        download(target, url=url, sha256=SHA256)
    message = str(caught.value)
    assert message.startswith(url + says)
    assert message.endswith("; nothing was kept; try again, or name a copy with dataset.path=FILE or LOCOMO_PATH")
    assert len(message.splitlines()) == 1
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == ({target.name: before} if before else {})


def test_a_wrong_file_that_is_there_is_replaced(server, tmp_path):
    target = tmp_path / "locomo10.json"
    target.write_bytes(b"half of")
    assert download(target, url=f"{server[0]}/good", sha256=SHA256) is True
    assert target.read_bytes() == BODY


def test_no_server(server, tmp_path, monkeypatch, capsys):
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/x"
        monkeypatch.setattr(module, "download", lambda: download(tmp_path / "f.json", url=url, sha256=SHA256))
        assert module.main() == 2
    assert capsys.readouterr() == (
        "",
        f"error: {url} cannot be reached (ConnectionError); nothing was kept; try again, or name a copy with "
        "dataset.path=FILE or LOCOMO_PATH\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match=r"file/f\.json cannot be written \((Not a directory|File exists)\); make room"):
        download(tmp_path / "file" / "f.json", url="http://127.0.0.1:9/x", sha256=SHA256)


def test_success_names_the_file_and_the_licence(monkeypatch, capsys):
    for fetched, word in ((True, "fetched"), (False, "already there")):
        monkeypatch.setattr(module, "download", lambda fetched=fetched: fetched)
        assert module.main() == 0
        assert capsys.readouterr().out == (
            f"{module.LOCOMO10_FILE}: {word}, sha256 verified (LoCoMo-10, CC BY-NC 4.0)\n"
        )
