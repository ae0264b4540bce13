"""A small W3C WebDriver client over chromedriver: real clicks and keys, standard library only."""

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key of an element reference (W3C WebDriver, section 12)."""
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
KEYS = {
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
    "Tab": "\ue004",
    "Home": "\ue011",
    "End": "\ue010",
}
WAIT = 20.0
"""Seconds until something that a page should show counts as missing."""


class Browser:
    """One browser session. Selectors are CSS."""

    def __init__(self, base: str, session: str) -> None:
        self._base = base
        self._session = session

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a file; returns when its scripts have run."""
        self._call("POST", "url", {"url": path.as_uri() + fragment})

    def js(self, script: str, *args: Any) -> Any:
        return self._call("POST", "execute/sync", {"script": script, "args": list(args)})

    def text(self, selector: str) -> str:
        """Of the first match, once there is one."""
        found = self.until(
            "const found = document.querySelector(arguments[0]); return found && [found.textContent]", selector
        )
        return str(found[0])

    def texts(self, selector: str) -> list[str]:
        found = self.js("return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)", selector)
        return [str(text) for text in found]

    def count(self, selector: str) -> int:
        return int(self.js("return document.querySelectorAll(arguments[0]).length", selector))

    def click(self, selector: str) -> None:
        element = self._call("POST", "element", {"using": "css selector", "value": selector})[ELEMENT]
        self._call("POST", f"element/{element}/click", {})

    def press(self, *keys: str) -> None:
        """Keys by name (`KEYS`) or as the characters to type, to what has the focus."""
        actions = []
        for key in keys:
            for char in [KEYS[key]] if key in KEYS else key:
                actions += [{"type": "keyDown", "value": char}, {"type": "keyUp", "value": char}]
        self._call("POST", "actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def until(self, script: str, *args: Any) -> Any:
        """The first true value of `script`, within `WAIT` seconds."""
        end = time.monotonic() + WAIT
        while True:
            value = self.js(script, *args)
            if value:
                return value
            assert time.monotonic() < end, f"the page never came to: {script} {args}"
            time.sleep(0.02)

    def size(self, width: int, height: int) -> None:
        """Of the page itself, as a phone or a window would have it."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def scheme(self, name: str) -> None:
        """`light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.devtools("Emulation.setEmulatedMedia", {"features": features})

    def devtools(self, command: str, params: Mapping[str, Any]) -> Any:
        return self._call("POST", "goog/cdp/execute", {"cmd": command, "params": dict(params)})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", "screenshot")))

    def log(self) -> list[str]:
        """What the page reported on its console since the last call: errors, refused resources."""
        return [str(item["message"]) for item in self._call("POST", "se/log", {"type": "browser"})]

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return _request(method, f"{self._base}/session/{self._session}/{path}", body)


def _request(method: str, url: str, body: Mapping[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        with error:
            raise AssertionError(f"{method} {url}: {error.read().decode()[:600]}") from None


def available() -> bool:
    return shutil.which("chromium") is not None and shutil.which("chromedriver") is not None


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A headless Chromium with an empty profile; it and its driver end with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    base = f"http://127.0.0.1:{port}"
    try:
        _await(base, driver)
        options = {"args": [*FLAGS, f"--user-data-dir={profile}"], "binary": shutil.which("chromium")}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = _request("POST", f"{base}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        try:
            yield Browser(base, session)
        finally:
            _request("DELETE", f"{base}/session/{session}")
    finally:
        driver.terminate()
        driver.wait(timeout=20)


def _await(base: str, driver: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + WAIT
    while True:
        assert driver.poll() is None, "chromedriver ended at once"
        assert time.monotonic() < end, "chromedriver does not answer"
        try:
            if _request("GET", f"{base}/status")["ready"]:
                return
        except OSError:
            time.sleep(0.02)
