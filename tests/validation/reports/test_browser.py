"""The page in a real browser, headless Chromium over its debugging pipe: it draws, it fits, and it asks for nothing."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deployops.validation.record import Report
from deployops.validation.reports.html import html

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
PHONE, DESK = (360, 740), (1280, 900)


def found_browser() -> str | None:
    named = os.environ.get("DEPLOYOPS_BROWSER")
    return named or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


class Browser:
    """One page of a Chromium: messages of the DevTools protocol, each ended by a NUL, over the file descriptors 3 and 4."""

    def __init__(self, program: str, folder: Path) -> None:
        down, up = os.pipe(), os.pipe()
        # out of the way of 3 and 4, which the child gets
        child = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (down[0], up[1])]

        def place() -> None:
            os.dup2(child[0], 3)
            os.dup2(child[1], 4)

        self.process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=place,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (down[0], up[1], *child):
            os.close(fd)
        self._to, self._from = os.fdopen(down[1], "wb", 0), os.fdopen(up[0], "rb", 0)
        self._rest, self._number = b"", 0
        self.events: list[dict[str, Any]] = []
        self._session = ""
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in pages if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = self._from.read(1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        first, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(first)
        return answer

    def open(self, path: Path, size: tuple[int, int], scheme: str = "light") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=size[0],
            height=size[1],
            deviceScaleFactor=1,
            mobile=size[0] < 600,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._read())

    def ask(self, expression: str) -> Any:
        """The value of an expression; the page has no script, the debugger has."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def screenshot(self, clip: tuple[float, float, float, float] | None = None) -> bytes:
        given: dict[str, Any] = {}
        if clip is not None:
            given["clip"] = dict(zip(("x", "y", "width", "height"), clip, strict=True)) | {"scale": 1}
            given["captureBeyondViewport"] = True
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", **given)["data"])

    def close(self) -> None:
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._to.close()
        self._from.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = found_browser()
    if program is None:
        pytest.skip("not checked: no Chromium here (install chromium, or name one in DEPLOYOPS_BROWSER)")
    opened = Browser(program, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


def pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Width, bytes per pixel and rows of a PNG as the browser writes it: 8 bits, not interlaced (RFC 2083)."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, head = 8, b"", b""
    while at < len(png):
        length, kind = int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + length]
        head = body if kind == b"IHDR" else head
        data += body if kind == b"IDAT" else b""
        at += length + 12
    width, depth, colour, interlaced = int.from_bytes(head[:4], "big"), head[8], head[9], head[12]
    assert (depth, interlaced) == (8, 0)
    step = {2: 3, 6: 4}[colour]
    raw, stride = zlib.decompress(data), width * step
    rows, before = [], bytes(stride)
    for start in range(0, len(raw), stride + 1):
        kind, line = raw[start], bytearray(raw[start + 1 : start + 1 + stride])
        for k in range(stride):
            left = line[k - step] if k >= step else 0
            up, corner = before[k], before[k - step] if k >= step else 0
            guess = left + up - corner
            nearest = min((left, up, corner), key=lambda v: abs(guess - v))
            line[k] = (line[k] + (0, left, up, (left + up) // 2, nearest)[kind]) & 255
        before = bytes(line)
        rows.append(before)
    return width, step, rows


@pytest.fixture
def page(tmp_path: Path) -> Any:
    def write(report: Report) -> Path:
        path = tmp_path / "report.html"
        path.write_text(html(report), encoding="utf-8")
        return path

    return write


def colours(png: bytes) -> dict[bytes, int]:
    width, step, rows = pixels(png)
    found: dict[bytes, int] = {}
    for row in rows:
        for k in range(width):
            colour = row[k * step : k * step + 3]
            found[colour] = found.get(colour, 0) + 1
    return found


OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# an element beyond the right edge that no box of its own scrolls
STICKING_OUT = """[...document.querySelectorAll('body *')].filter(e => {
  for (let p = e.parentElement; p; p = p.parentElement)
    if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(p).overflowX)) return false;
  return e.getBoundingClientRect().right > innerWidth + 1;
}).length"""


@pytest.mark.parametrize("size", [PHONE, DESK])
@pytest.mark.parametrize("kind", ["full", "hostile", "large"])
def test_the_page_never_scrolls_sideways(
    browser: Browser, page: Any, size: tuple[int, int], kind: str, request: pytest.FixtureRequest
) -> None:
    browser.open(page(request.getfixturevalue(f"{kind}_report")), size)
    assert browser.ask("innerWidth") == size[0]
    assert browser.ask(OVERFLOW) == 0
    assert browser.ask(STICKING_OUT) == 0


@pytest.mark.parametrize("size", [PHONE, DESK])
def test_the_verdict_is_the_first_thing_seen(
    browser: Browser, page: Any, full_report: Report, size: tuple[int, int]
) -> None:
    browser.open(page(full_report), size)
    left, top, width, height = browser.ask(
        "(r => [r.x, r.y, r.width, r.height])(document.querySelector('#verdict .v').getBoundingClientRect())"
    )
    assert width > 60
    assert height > 20
    assert top + height < 120
    assert browser.ask("document.querySelector('#verdict').innerText").strip().lower() == "failed"
    found = colours(browser.screenshot((left, top, width, height)))
    assert found.get(bytes.fromhex("a91d22"), 0) > 50  # letters in the colour of a failure
    assert found.get(bytes.fromhex("fbe6e5"), 0) > 500  # on its ground


def test_charts_and_tables_have_a_size(browser: Browser, page: Any, full_report: Report) -> None:
    browser.open(page(full_report), PHONE)
    charts = browser.ask(
        "[...document.querySelectorAll('svg.chart')].map(e => [e.getBoundingClientRect().width, e.getBoundingClientRect().height])"
    )
    assert len(charts) >= 6
    assert all(w > 250 and h > 40 for w, h in charts)
    texts = browser.ask(
        "Math.min(...[...document.querySelectorAll('svg.chart text')].map(e => e.getBoundingClientRect().height))"
    )
    assert texts >= 8
    outside = browser.ask(
        """[...document.querySelectorAll('svg.chart text')].filter(e => {
          const t = e.getBoundingClientRect(), s = e.closest('svg').getBoundingClientRect();
          return t.left < s.left - 1 || t.right > s.right + 1 || t.bottom > s.bottom + 2;
        }).map(e => e.textContent)"""
    )
    assert outside == []


def test_dark_mode_is_dark_and_still_readable(browser: Browser, page: Any, full_report: Report) -> None:
    path = page(full_report)
    ratio = """(() => {
      const value = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
        .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
      const back = e => {
        for (; e; e = e.parentElement) {
          const c = getComputedStyle(e).backgroundColor; if (c != 'rgba(0, 0, 0, 0)') return c;
        } return 'rgb(255,255,255)'; };
      const seen = [...document.querySelectorAll('h1, h2, p, td, th, dd, dt, .v, .soft, pre')]
        .filter(e => e.getClientRects().length);
      return Math.min(...seen.map(e => { const [a, b] = [value(getComputedStyle(e).color), value(back(e))].sort((x, y) => y - x);
        return (a + .05) / (b + .05); }));
    })()"""
    grounds = []
    for scheme in ("light", "dark"):
        browser.open(path, DESK, scheme)
        grounds.append(browser.ask("getComputedStyle(document.body).backgroundColor"))
        assert browser.ask(ratio) >= 4.5  # WCAG 2.2, level AA
    assert grounds == ["rgb(255, 255, 255)", "rgb(22, 22, 24)"]


@pytest.mark.parametrize("kind", ["full", "hostile"])
def test_nothing_is_asked_for_and_nothing_runs(
    browser: Browser, page: Any, kind: str, request: pytest.FixtureRequest
) -> None:
    path = page(request.getfixturevalue(f"{kind}_report"))
    browser.open(path, DESK)
    asked = [
        e["params"]["request"]["url"]
        for e in browser.events
        if e.get("method") == "Network.requestWillBeSent"
    ]
    assert asked == [path.as_uri()]
    logged = [
        e["params"]
        for e in browser.events
        if e.get("method") in ("Log.entryAdded", "Runtime.consoleAPICalled")
    ]
    assert logged == []
    assert browser.ask("document.scripts.length") == 0
    assert browser.ask("document.title").endswith("– deployops")
    loaders = (
        "script, img, iframe, object, embed, link, form, base, audio, video, a[href], image, foreignObject"
    )
    assert browser.ask(f"document.querySelectorAll('{loaders}').length") == 0
    handlers = "[...document.querySelectorAll('*')].filter(e => e.getAttributeNames().some(n => n.startsWith('on'))).length"
    assert browser.ask(handlers) == 0


def test_the_policy_of_the_page_stops_a_script(browser: Browser, tmp_path: Path, full_report: Report) -> None:
    """The escaping is one wall, the policy the other: it is there although nothing has yet needed it."""
    path = tmp_path / "planted.html"
    path.write_text(html(full_report).replace("</main>", "<script>document.title='owned'</script></main>"))
    browser.open(path, DESK)
    assert browser.ask("document.scripts.length") == 1
    assert browser.ask("document.title") != "owned"


def test_the_page_prints_on_paper(browser: Browser, page: Any, full_report: Report) -> None:
    browser.open(page(full_report), DESK)
    pdf = base64.b64decode(browser.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"])
    assert pdf.startswith(b"%PDF-")
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.ask(
        "[...document.querySelectorAll('.box')].every(e => getComputedStyle(e).overflowX == 'visible')"
    )
    browser.call("Emulation.setEmulatedMedia", media="")
