"""Headless Chromium: archived pages without network and JavaScript, and JupyterLab as a person uses it.

Where Chromium is missing these tests are skipped, or fail if FUSIONKIT_REQUIRE_BROWSER=1 (as in CI).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FLAGS = [
    *(["--no-sandbox"] if os.geteuid() == 0 else []),
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LAB_START_S = 60

# Runs in the page's isolated world, which works while the page's own JavaScript is off.
INSPECT = """() => {
  const visible = (e) => e.checkVisibility({visibilityProperty: true, opacityProperty: true})
    && e.getBoundingClientRect().width > 0 && e.getBoundingClientRect().height > 0;
  const sourced = [...document.querySelectorAll('script[src], img[src], iframe[src], link[href]')];
  return {
    text: document.body.innerText,
    tables: [...document.querySelectorAll('table')].map((e) => ({
      visible: visible(e), rows: e.rows.length, text: e.innerText})),
    pictures: [...document.querySelectorAll('img, svg')].map((e) => ({
      kind: e.localName,
      drawn: visible(e) && (e.localName !== 'img' || (e.complete && e.naturalWidth > 0)),
      name: e.localName === 'img' ? e.alt : (e.querySelector('title')?.textContent ?? '')})),
    sources: sourced.map((e) => e.getAttribute('src') ?? e.getAttribute('href'))
      .filter((s) => /^\\s*(https?:)?\\/\\//i.test(s)),
  };
}"""

# To run a cell before the kernel is ready opens a dialog that asks for a kernel; the command then never returns.
READY = """() => {
  const session = window.jupyterapp.shell.currentWidget?.sessionContext;
  return session?.isReady && session.session?.kernel?.status === 'idle';
}"""
RUN_ALL = "() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }"
ALL_DONE = """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
  .every((cell) => cell.type !== 'code' || (cell.executionCount !== null && cell.executionState !== 'running'))"""


@dataclass(frozen=True, slots=True)
class OpenedPage:
    """What an archived page shows with networking and JavaScript off.

    requests: every request besides the page itself; tables: {visible, rows, text}; pictures: img and svg
    elements as {kind, drawn, name}; sources: http(s) sources in script, link, img, iframe.
    """

    requests: list[str]
    text: str
    tables: list[dict[str, Any]]
    pictures: list[dict[str, Any]]
    sources: list[str]

    @property
    def hidden_tables(self) -> list[str]:
        """The text of each table that cannot be seen."""
        return [table["text"] for table in self.tables if not table["visible"]]

    @property
    def missing_pictures(self) -> list[str]:
        """The name of each picture that is not drawn."""
        return [picture["name"] for picture in self.pictures if not picture["drawn"]]

    def assert_whole(self) -> None:
        """Assert that nothing is asked of a network and that every table and picture is shown."""
        assert self.requests == []
        assert self.sources == []
        assert self.hidden_tables == []
        assert self.missing_pictures == []
        assert self.tables or self.pictures, "the page holds no table and no picture, so nothing was compared"


def _unavailable(reason: str) -> None:
    if os.environ.get("FUSIONKIT_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{reason} (FUSIONKIT_REQUIRE_BROWSER=1)")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Start one headless Chromium for the session; a `playwright.sync_api.Browser`."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        _unavailable("chromium is not on PATH; on Debian and Ubuntu: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _unavailable("playwright is not installed; pip install 'fusionkit[dev]'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_archived(chromium: Any) -> Callable[[Path], OpenedPage]:
    """Return a function that opens an HTML file with networking and JavaScript off."""

    def open_page(path: Path) -> OpenedPage:
        context = chromium.new_context(offline=True, java_script_enabled=False)
        try:
            page = context.new_page()
            requests: list[str] = []
            page.on("request", lambda request: requests.append(request.url))
            address = path.resolve().as_uri()
            page.goto(address, wait_until="load")
            seen = page.evaluate(INSPECT)
            others = [url for url in requests if url != address and not url.startswith("data:")]
            return OpenedPage(requests=others, **seen)
        finally:
            context.close()

    return open_page


@dataclass(frozen=True, slots=True)
class Lab:
    """A running JupyterLab: its address, its token, and the folder that it serves."""

    url: str
    token: str
    folder: Path


@contextmanager
def _served(folder: Path, state: Path) -> Iterator[Lab]:
    """Serve `folder` with JupyterLab; its settings and run-time files stay in `state`."""
    token = secrets.token_hex(16)
    for kind in ("config", "data", "runtime", "ipython", "settings"):
        (state / kind).mkdir(parents=True)
    news = state / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    news.parent.mkdir(parents=True)
    news.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}), "utf-8")
    environment = {
        "JUPYTER_CONFIG_DIR": str(state / "config"),
        "JUPYTER_DATA_DIR": str(state / "data"),
        "JUPYTER_RUNTIME_DIR": str(state / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(state / "settings"),
        "IPYTHONDIR": str(state / "ipython"),
    }
    options = [
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.port=0",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
        "--ServerApp.terminals_enabled=False",
        "--LabApp.expose_app_in_browser=True",
    ]
    with (state / "lab.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield Lab(_address(server, state), token, folder)
        finally:
            server.terminate()
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _address(server: subprocess.Popen[bytes], state: Path) -> str:
    """Wait until the server has written its run-time file, and return its address."""
    deadline = time.monotonic() + LAB_START_S
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(FileNotFoundError, json.JSONDecodeError):  # not written yet, or not to its end
            return str(
                json.loads((state / "runtime" / f"jpserver-{server.pid}.json").read_text("utf-8"))["url"]
            )
        time.sleep(0.1)
    log = (state / "lab.log").read_text("utf-8", errors="replace")
    raise AssertionError(f"JupyterLab did not start within {LAB_START_S} s:\n{log[-2000:]}")


@pytest.fixture
def lab(chromium: Any, tmp_path: Path) -> Iterator[Lab]:
    """Serve the empty folder `lab.folder`; put notebooks into it, then open them with `open_notebook`."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    with _served(folder, tmp_path / "jupyter") as served:
        yield served


@pytest.fixture
def open_notebook(chromium: Any, lab: Lab) -> Iterator[Callable[[str], Any]]:
    """Return a function that opens a notebook of `lab.folder`, runs all cells and gives the page.

    The page may talk to JupyterLab alone.
    """
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})
    context.route(lambda url: not url.startswith(lab.url), lambda route: route.abort())

    def open_page(name: str, timeout_s: float = 60) -> Any:
        page = context.new_page()
        page.set_default_timeout(timeout_s * 1000)
        page.goto(f"{lab.url}lab/tree/{name}?token={lab.token}")
        page.locator(".jp-Notebook .jp-Cell").first.wait_for()
        page.wait_for_function(READY)
        page.evaluate(RUN_ALL)
        page.wait_for_function(ALL_DONE)
        return page

    try:
        yield open_page
    finally:
        context.close()
