"""The live page: what it serves, to whom, and how it follows a record that is still being written."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import icechunk
import numpy as np
import pytest
import xarray as xr

from tangentlens.report import opening
from tangentlens.report.progress import progress, progress_text
from tangentlens.report.watch import LivePage, watch, watch_text
from tests.report.records import record
from tests.report.test_opening import as_recorded, repository

STEPS = np.array([0, 40, 120])


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePage]:
    folder = repository(tmp_path_factory.mktemp("live") / "run", record(steps=STEPS, state="recording"))
    with LivePage(folder) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def asked(server: LivePage, path: str, method: str = "GET", host: str | None = None) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of one request, its path sent as it stands."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, {key.lower(): value for key, value in answer.getheaders()}, body


def test_the_page_is_served_at_its_root(live: LivePage) -> None:
    status, headers, body = asked(live, "/")
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
    assert 'id="live"' in body and 'id="tangent"' in body and "recording" in body


def test_data_come_with_the_figures_once_and_then_only_the_progress(live: LivePage) -> None:
    first = json.loads(asked(live, "/data?have=")[2])
    assert first["figures"]["training-loss-0"]["data"] and "Tangent features" in first["words"]
    again = json.loads(asked(live, f"/data?have={first['version']}")[2])
    assert "figures" not in again and "step 120" in again["status"] and again["over"] is False


@pytest.mark.parametrize(
    "path",
    [
        "/index.html",
        "/report",
        "/data/",
        "/../../etc/passwd",
        "/data/../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/run",
        "/zarr.json",
        "/favicon.ico",
        "/./",
        "/data%00",
        "/static/page.js",
    ],
)
def test_everything_else_is_not_found(live: LivePage, path: str) -> None:
    status, _, body = asked(live, path)
    assert status == 404 and "root:" not in body and len(body) < 100


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", "0.0.0.0"]
)
def test_a_request_that_names_another_host_is_refused(live: LivePage, host: str) -> None:
    for path in ("/", "/data"):
        status, _, body = asked(live, path, host=host)
        assert status == 403 and "tangent features" not in body.lower()


def test_localhost_with_the_port_is_the_same_machine(live: LivePage) -> None:
    assert asked(live, "/data", host=f"localhost:{live.server_port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"])
def test_nothing_can_be_changed_through_it(live: LivePage, method: str) -> None:
    assert asked(live, "/", method)[0] >= 400


def test_head_answers_without_a_body(live: LivePage) -> None:
    status, headers, body = asked(live, "/", "HEAD")
    assert status == 200 and int(headers["content-length"]) > 1000 and body == ""


def test_it_listens_on_the_loopback_interface_alone(live: LivePage) -> None:
    assert live.server_address[0] == "127.0.0.1"
    with pytest.raises(OSError):  # another address of this very machine
        socket.create_connection(("127.0.0.2", live.server_port), timeout=2)


def test_answers_forbid_other_sites_to_use_or_frame_them(live: LivePage) -> None:
    headers = asked(live, "/data")[1]
    assert headers["cross-origin-resource-policy"] == "same-origin" and headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"] and headers["cache-control"] == "no-store"
    assert "python" not in headers.get("server", "").lower()


def test_a_new_commit_is_seen_by_the_next_question(tmp_path: Path) -> None:
    folder = repository(tmp_path / "run", record(steps=STEPS[:2], state="recording"))
    server = LivePage(folder)
    before = json.loads(server.data(""))
    session = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder))).writable_session("main")
    longer = record(steps=STEPS, state="finished")
    for group in ("training", "tangent"):
        as_recorded(longer[group].to_dataset(inherit=False)).to_zarr(
            session.store, group=group, consolidated=False, mode="w"
        )
    session.commit("two more steps")
    after = json.loads(server.data(before["version"]))
    server.server_close()
    assert after["version"] != before["version"] and '"120"' in json.dumps(after["figures"]["tangent-spectrum-0"])


def test_a_run_that_disappears_is_an_answer_and_not_a_crash(tmp_path: Path) -> None:
    with LivePage(tmp_path / "gone") as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        status, _, body = asked(server, "/data")
        server.shutdown()
    assert status == 503 and "does not exist" in body


def test_a_damaged_run_is_an_answer_and_not_a_crash(tmp_path: Path) -> None:
    folder = repository(tmp_path / "run", record(steps=STEPS))
    for file in (folder / "manifests").iterdir():
        file.write_bytes(file.read_bytes()[:10])
    with LivePage(folder) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        status, _, body = asked(server, "/")
        server.shutdown()
    assert status == 503 and "early eof" in body


def test_watching_nothing_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        watch(tmp_path / "gone")


def test_progress_counts_steps_cost_silence_and_the_last_error() -> None:
    tree = record(steps=STEPS, state="recording")
    tree.attrs |= {"planned_steps": "[0, 40, 120, 240]", "updated": "2025-01-31T10:00:00+00:00"}
    tree["errors"] = xr.Dataset(
        attrs={
            "log": json.dumps([{"step": 40, "measure": "forward/richness", "type": "ValueError", "message": "n < p"}])
        }
    )
    now = progress(tree, now=1738317600 + 90)
    assert (now.step, now.end, now.share, now.recorded, now.over) == (120, 240, 0.5, 3, False)
    text = progress_text(now)
    assert "50 %" in text and "step 120 of 240" in text and "8.4 % of the time" in text and "1 min 30 s ago" in text
    assert "forward/richness failed at step 40: ValueError: n < p" in text


def test_progress_of_a_run_without_an_end_has_no_bar() -> None:
    tree = record(steps=STEPS, state="recording")
    tree.attrs["planned_steps"] = "[]"
    assert progress(tree).share is None and "[" not in progress_text(progress(tree))


def test_the_terminal_shows_progress_and_ends_with_the_verdict(tmp_path: Path) -> None:
    said: list[str] = []
    watch_text(repository(tmp_path / "run", record(steps=STEPS)), say=said.append)
    lines = "\n".join(said).splitlines()
    assert "finished" in lines[0] and "step 120 of 120" in lines[0] and any("Features" in line for line in lines)


def test_a_run_in_a_bucket_keeps_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(opening, "_open_icechunk", lambda place: asked.append(place) or (record(steps=STEPS), "v1"))
    with LivePage("s3://bucket/runs/mine") as server:
        assert json.loads(server.data(""))["version"] == "v1"
    assert asked == ["s3://bucket/runs/mine"]


def test_a_port_that_is_taken_or_is_none_is_refused(live: LivePage) -> None:
    for port in (live.server_port, 99_999):
        with pytest.raises(ValueError, match=f"needs a free port of this machine, got {port} .*; give another, or 0"):
            LivePage(live.run, port)
