"""The report of a run that is still being written: a page on this machine alone, or lines in a terminal."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tangentlens.report.opening import Run, open_run
from tangentlens.report.page import LIVE_POLICY, Parts, html, page_parts
from tangentlens.report.progress import Progress, in_words, progress, progress_html, progress_text
from tangentlens.report.verdict import verdict

LOOPBACK = "127.0.0.1"


class LivePage(ThreadingHTTPServer):
    """Serves one page and its data on the loopback interface, and nothing else to nobody else.

    A request must name this machine and port as its host: a page of another site cannot reach the data by giving its
    own name this address. No path of a request ever becomes a path of a file.
    """

    daemon_threads = True

    def __init__(self, run: str | Path, port: int = 0) -> None:
        self.run = str(run)  # not a Path, which would make s3:/ out of s3://
        self._lock = threading.Lock()
        self._shown: tuple[str, Parts] | None = None
        try:
            super().__init__((LOOPBACK, port), _Answer)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ValueError(
                f"the page needs a free port of this machine, got {port} ({reason}); give another, or 0 for any"
            ) from error

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/"

    def hosts(self) -> tuple[str, str]:
        return f"{LOOPBACK}:{self.server_port}", f"localhost:{self.server_port}"

    def current(self) -> tuple[Run, Parts, Progress]:
        """The newest commit, drawn once however many ask for it."""
        run = open_run(self.run)
        with self._lock:
            if self._shown is None or self._shown[0] != run.version or not run.version:
                self._shown = (run.version, page_parts([run]))
            return run, self._shown[1], progress(run.tree)

    def page(self) -> str:
        run, parts, now = self.current()
        line = f'<div class="live" id="live" role="status" data-version="{run.version}">{progress_html(now)}</div>'
        return html(parts, LIVE_POLICY, scripts=("page.js", "live.js")).replace("<body>", f"<body>{line}", 1)

    def data(self, have: str) -> str:
        """The progress line, and the page's words and figures when the asker has an older version of them."""
        run, parts, now = self.current()
        answer: dict[str, Any] = {
            "status": progress_html(now),
            "over": now.over,
            "title": f"{in_words(now)[1]} · {parts.title}",
        }
        if have == run.version and run.version:
            return json.dumps(answer)
        head = json.dumps(answer | {"version": run.version, "words": parts.words})
        figures = ",".join(f"{json.dumps(name)}:{figure}" for name, figure in parts.figures.items())
        return f'{head[:-1]},"figures":{{{figures}}}}}'


class _Answer(BaseHTTPRequestHandler):
    server: LivePage
    server_version = "tangentlens"
    sys_version = ""

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.hosts():
            return self._send(
                HTTPStatus.FORBIDDEN, "text/plain", f"this page is served to {self.server.address} only\n"
            )
        asked = urlsplit(self.path)
        try:
            if asked.path == "/":
                return self._send(HTTPStatus.OK, "text/html", self.server.page())
            if asked.path == "/data":
                have = parse_qs(asked.query).get("have", [""])[0]
                return self._send(HTTPStatus.OK, "application/json", self.server.data(have))
        except Exception as error:  # no run yet, or one that cannot be read: said, and tried again
            return self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n")
        return self._send(HTTPStatus.NOT_FOUND, "text/plain", "there is nothing but / and /data here\n")

    do_HEAD = do_GET

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Content-Security-Policy", f"{LIVE_POLICY}; frame-ancestors 'none'")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  (the name is the base class's)
        """Requests of one's own browser every two seconds are no news."""


def watch(run: str | Path, *, port: int = 0, say: Callable[[str], None] = print) -> None:
    """Serve the live page until interrupted; says where it is. Port 0 takes a free one."""
    open_run(run)  # a run that is not there is said at once, not by a page that stays empty
    with LivePage(run, port) as server:
        say(f"watching {run} at {server.address}  (Ctrl-C ends the page, not the training)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("")


def watch_text(run: str | Path, *, every: float = 2.0, once: bool = False, say: Callable[[str], None] = print) -> None:
    """Say the progress whenever the run has written, and the verdict at its end (or now, with `once`)."""
    opened, version = open_run(run), None
    try:
        while True:
            now = progress(opened.tree)
            if opened.version != version:
                version = opened.version
                say(progress_text(now))
            if now.over or once:
                break
            time.sleep(every)
            opened = open_run(run)
    except KeyboardInterrupt:
        say("")
    say(f"\n{verdict(opened.tree)}")
