"""A server of files on loopback that fails now and then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Failing(BaseHTTPRequestHandler):
    """A server of files below `folder`; every third response stops after half of its bytes, every fifth is an error."""

    folder = Path()
    answers = 0
    fails = True
    cut = False  # whether every response stops there
    gone = False

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        path = self.folder / self.path.lstrip("/")
        if not path.is_file() or (self.gone and body):
            self.send_error(500 if self.gone else 404)
            return
        type(self).answers += body
        if self.fails and body and self.answers % 5 == 0:
            self.send_error(503)
            return
        content = path.read_bytes()
        first, last = 0, len(content) - 1
        if wanted := self.headers.get("Range"):
            begin, _, end = wanted.removeprefix("bytes=").partition("-")
            first, last = int(begin), min(int(end or last), last)
        part = content[first : last + 1]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"1"')
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.end_headers()
        if body:
            with suppress(BrokenPipeError, ConnectionResetError):  # it asked for more than it wanted
                half = self.cut or (self.fails and self.answers % 3 == 0)
                self.wfile.write(part[: len(part) // 2] if half else part)
        self.close_connection = True

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a server of the files of a folder."""
    Failing.folder, Failing.answers, Failing.fails, Failing.gone, Failing.cut = folder, 0, True, False, False
    served = ThreadingHTTPServer(("127.0.0.1", 0), Failing)
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{served.server_address[1]}"
    served.shutdown()
    thread.join()
    served.server_close()
