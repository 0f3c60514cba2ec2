"""The page in a real browser: it draws, moves, answers the mouse, compares, prints, and asks for nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import icechunk
import numpy as np
import pytest

from tangentlens.report import write_report
from tangentlens.report.watch import LivePage
from tests.report.chromium import Browser, chromium_program
from tests.report.records import record
from tests.report.test_opening import as_recorded, repository

STEPS = np.array([0, 10, 40, 80, 120, 500])
SPECTRUM = "tangent-spectrum-0"

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.skipif(
        chromium_program() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"
    ),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = chromium_program()
    assert program
    opened = Browser(program, tmp_path_factory.mktemp("profile"))
    opened.resize(1280, 900)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report(record(steps=STEPS), tmp_path_factory.mktemp("one") / "report.html").as_uri()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> str:
    runs = [record(steps=STEPS), record(title="control", rich=False, seed=1, steps=STEPS[:4])]
    return write_report(runs, tmp_path_factory.mktemp("two") / "report.html").as_uri()


@pytest.fixture
def page(browser: Browser, one: str) -> Browser:
    return opened(browser, one)


def opened(browser: Browser, address: str) -> Browser:
    browser.console.clear()
    browser.requests.clear()
    browser.prefer("light")
    browser.open(address)
    browser.wait("typeof tangentlens === 'object'")
    return browser


def bring(page: Browser, figure: str) -> None:
    """Scroll a figure to the middle of the window and wait until it is drawn."""
    page.run(f"document.getElementById('{figure}').scrollIntoView({{block: 'center', behavior: 'instant'}})")
    page.wait(f"document.querySelector('#{figure} .main-svg') !== null")


def test_all_sections_and_figures_are_drawn_without_a_complaint(page: Browser) -> None:
    names = page.run("[...document.querySelectorAll('section[id]')].map((section) => section.id)")
    assert names == ["verdict", "facts", "training", "tangent", "forward", "ansatz", "tokens", "overhead"]
    page.run("tangentlens.drawAll()")
    drawn = ".scatterlayer .trace, .heatmaplayer image"
    empty = f"[...document.querySelectorAll('.plot')].filter((box) => !box.querySelector('{drawn}'))"
    undrawn = page.run(f"{empty}.map((box) => box.id)")
    assert undrawn == []
    assert page.run("document.querySelectorAll('.plot').length") > 25
    assert page.console == []


def test_nothing_is_asked_of_the_network(page: Browser, one: str) -> None:
    page.run("tangentlens.drawAll()")
    page.run("document.getElementById('scheme').click()")
    page.run("new Promise((done) => setTimeout(done, 300))")
    asked = {address for address in page.requests if not address.startswith(("data:", "blob:"))}
    assert asked == {one}


def test_the_page_could_not_reach_the_network_if_it_tried(page: Browser) -> None:
    tried = page.run("fetch('http://127.0.0.1:9/').then(() => 'reached', (error) => 'refused')")
    assert tried == "refused" and any("Content Security Policy" in line for line in page.console)


def test_no_button_of_a_figure_sends_data_away(page: Browser) -> None:
    bring(page, SPECTRUM)
    page.run("tangentlens.config.displayModeBar = true")  # as for a reader with a mouse over the figure
    page.run(f"tangentlens.draw(document.getElementById('{SPECTRUM}'))")
    buttons = page.run(
        f"[...document.querySelectorAll('#{SPECTRUM} .modebar-btn')].map((button) => button.dataset.title)"
    )
    assert set(buttons) == {"Download plot", "Zoom", "Pan", "Reset axes"}, "no sharing, no cloud"


def test_figures_far_down_wait_until_they_come_near(page: Browser) -> None:
    assert page.run("tangentlens.state.drawn.has('tokens-scores-0')") is False
    bring(page, "tokens-scores-0")
    assert page.run("document.querySelectorAll('#tokens-scores-0 .points path').length") == 300


def test_the_slider_moves_the_figure_to_the_recorded_step(page: Browser) -> None:
    bring(page, SPECTRUM)
    values = f"Math.max(...document.getElementById('{SPECTRUM}')._fullData.at(-1).y)"
    cliffs = f"document.getElementById('{SPECTRUM}')._fullLayout.shapes.length"
    at_the_end, cliffs_at_the_end = page.run(values), page.run(cliffs)
    page.run("document.querySelector('#tangent-spectrum input').focus()")
    page.press("Home")
    page.wait("document.querySelector('#tangent-spectrum output').textContent === 'step 0'")
    recorded = record(steps=STEPS)["tangent"]["eigenvalues"]
    assert page.run(values) == pytest.approx(float(recorded[0].max()), rel=1e-6)
    assert at_the_end == pytest.approx(float(recorded[-1].max()), rel=1e-6)
    assert (page.run(cliffs), cliffs_at_the_end) == (2, 3)
    page.press("ArrowRight")
    page.wait("document.querySelector('#tangent-spectrum output').textContent === 'step 10'")


def test_all_figures_move_together_unless_told_not_to(page: Browser) -> None:
    other = "document.querySelector('#tangent-modes output').textContent"
    page.run("tangentlens.move(document.querySelector('#tangent-spectrum .stepper'), 2)")
    assert page.run(other) == "step 40"
    page.run("document.getElementById('linked').click()")
    page.run("tangentlens.move(document.querySelector('#tangent-spectrum .stepper'), 4)")
    assert page.run(other) == "step 40"


def test_curves_show_where_the_slider_stands(page: Browser) -> None:
    bring(page, "training-accuracy-0")
    page.run("tangentlens.move(document.querySelector('#tangent-spectrum .stepper'), 3)")
    shapes = page.run(
        "document.getElementById('training-accuracy-0')._fullLayout.shapes.map((shape) => [shape.name, shape.x0])"
    )
    assert ["cursor", 80] in shapes


def test_play_goes_through_the_steps_to_the_end(page: Browser) -> None:
    bring(page, SPECTRUM)
    page.run("document.querySelector('#tangent-spectrum .play').click()")
    page.wait("document.querySelector('#tangent-spectrum output').textContent === 'step 0'")
    page.wait("document.querySelector('#tangent-spectrum output').textContent === 'step 500'")
    page.wait("!document.querySelector('#tangent-spectrum .play').classList.contains('on')")


def test_hovering_a_dot_says_which_token_it_is(page: Browser) -> None:
    bring(page, "tokens-scores-0")
    where = page.run(
        "(() => { const box = document.querySelector('#tokens-scores-0 .points path').getBoundingClientRect();"
        " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    page.move_mouse(where[0] - 2, where[1])
    page.move_mouse(*where)
    page.wait("document.querySelector('#tokens-scores-0 .hoverlayer .hovertext') !== null")
    said = page.run("document.querySelector('#tokens-scores-0 .hoverlayer').textContent")
    assert (
        "word" in said
        and "score for positive" in said
        and "share of its occurrences under positive" in said
        and "times" in said
    )


def test_runs_are_compared_on_one_page_with_their_own_steps(browser: Browser, two: str) -> None:
    page = opened(browser, two)
    assert page.run("[...document.querySelectorAll('.run-name')].map((name) => name.textContent)") == [
        "modular addition",
        "control",
    ]
    bring(page, "comparison-training-test_accuracy-0")
    assert (
        page.run("document.querySelectorAll('#comparison-training-test_accuracy-0 .scatterlayer .trace').length") == 2
    )
    bring(page, "tangent-spectrum-1")
    page.run("tangentlens.move(document.querySelector('#tangent-spectrum .stepper'), 5)")
    ends = [
        page.run(f"Math.max(...document.getElementById('tangent-spectrum-{i}')._fullData.at(-1).y)") for i in (0, 1)
    ]
    assert ends[0] > ends[1], "the second run ended at step 80 and stays there"
    left, right = (
        page.run(f"document.getElementById('tangent-spectrum-{i}').getBoundingClientRect().x") for i in (0, 1)
    )
    assert left < right and page.console == []


def test_dark_and_light_follow_the_system_and_the_button(page: Browser) -> None:
    bring(page, "training-accuracy-0")
    ink = "getComputedStyle(document.querySelector('#training-accuracy-0 .xtick text')).fill"
    light = page.run(ink)
    page.prefer("dark")
    page.wait("document.documentElement.dataset.scheme === 'dark'")
    page.wait(f"{ink} !== '{light}'")
    page.run("document.getElementById('scheme').click()")
    assert page.run(ink) == light


def test_nothing_runs_over_the_edge_of_a_telephone(browser: Browser, one: str) -> None:
    browser.resize(390, 800, mobile=True)
    try:
        page = opened(browser, one)
        page.run("tangentlens.drawAll()")
        assert page.run("document.documentElement.scrollWidth") <= 390
    finally:
        browser.resize(1280, 900)


def test_it_prints_every_figure_in_light_colours_and_goes_back(page: Browser, tmp_path: Path) -> None:
    page.prefer("dark")
    page.wait("document.documentElement.dataset.scheme === 'dark'")
    page.run("addEventListener('afterprint', () => { window.printed = tangentlens.state.drawn.size; })")
    assert page.print_to(tmp_path / "r.pdf").stat().st_size > 100_000
    page.wait("window.printed === document.querySelectorAll('.plot').length")
    assert page.run("document.documentElement.dataset.scheme") == "dark"
    assert page.run("document.querySelectorAll('details[open]').length") == 0


def test_the_live_page_takes_up_new_steps_and_keeps_the_readers_place(browser: Browser, tmp_path: Path) -> None:
    folder = repository(tmp_path / "run", record(steps=STEPS[:3], state="recording"))
    with LivePage(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = opened(browser, server.address)
        assert "recording" in page.run("document.getElementById('live').textContent")
        bring(page, SPECTRUM)
        page.run("tangentlens.move(document.querySelector('#tangent-spectrum .stepper'), 1)")
        place = page.run("scrollY")
        commit(folder, record(steps=STEPS, state="finished"))
        page.wait("document.querySelector('#tangent-spectrum input').max === '5'")
        assert page.run("document.querySelector('#tangent-spectrum output').textContent") == "step 10"
        assert abs(page.run("scrollY") - place) < 400 and place > 500
        page.wait("document.getElementById('live').textContent.startsWith('finished')")
        asked = {address for address in page.requests if not address.startswith(("data:", "blob:"))}
        assert all(address.startswith(server.address) for address in asked) and page.console == []
        server.shutdown()


def commit(folder: Path, tree: object) -> None:
    """The record as it is some steps later, in one commit."""
    import xarray as xr

    assert isinstance(tree, xr.DataTree)
    session = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder))).writable_session("main")
    for node in tree.subtree:
        if node.path != "/":
            as_recorded(node.to_dataset(inherit=False)).to_zarr(
                session.store, group=node.path.strip("/"), consolidated=False, mode="w"
            )
    import zarr

    zarr.open_group(session.store, mode="r+").attrs.update(json.loads(json.dumps(tree.attrs)))
    session.commit("more")
