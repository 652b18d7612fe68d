"""A real browser that tests tell what to do: headless Chromium."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium")
browsed = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not there: apt-get install chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1400,900"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe"),
)
# Chromium listens on descriptor 3 and answers on 4.
START = """
import os, sys
for ours, far in zip(sys.argv[1:3], (103, 104)):
    os.dup2(int(ours), far)
for far, wanted in ((103, 3), (104, 4)):
    os.dup2(far, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """Headless Chromium, told what to do in its own protocol over a pipe."""

    def __init__(self, folder: Path) -> None:
        reads, self.commands = os.pipe()
        self.answers, writes = os.pipe()
        command = [sys.executable, "-c", START, str(reads), str(writes), CHROMIUM, *FLAGS, f"--user-data-dir={folder}"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([*command, "about:blank"], pass_fds=(reads, writes), **quiet)
        os.close(reads)
        os.close(writes)
        self.numbers, self.events, self.unread, self.to = itertools.count(1), [], b"", {}
        targets = self.send("Target.getTargets")["targetInfos"]
        target = next(target["targetId"] for target in targets if target["type"] == "page")
        self.to = {"sessionId": self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        self.send("Browser.close")
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)

    def send(self, method: str, **parameters: object) -> dict:
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters, **self.to}
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _receive(self) -> dict:
        while b"\0" not in self.unread:
            some = os.read(self.answers, 1 << 20)
            assert some, "chromium has ended"
            self.unread += some
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def open(self, address: str) -> None:
        self.send("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str, **where: object) -> object:
        done = self.send("Runtime.evaluate", expression=script, returnByValue=True, **where)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait(self, script: str, inside: bool = False) -> object:
        """What a script gives as soon as that is something; inside is in the frame that a result is shown in."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = self.run(script, **(self.frame() if inside else {}))
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"never came true: {script}")

    def frame(self) -> dict[str, int]:
        contexts = [e["params"]["context"] for e in self.events if e["method"] == "Runtime.executionContextCreated"]
        return {"contextId": contexts[-1]["id"]}

    def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **metrics)

    def press(self, key: str) -> None:
        self.wait("performance.getEntriesByType('paint').length")  # a key that is pressed before is lost
        text = {"Enter": "\r"}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            code = {"Enter": 13, "Tab": 9, "ArrowRight": 39}[key]
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    def click(self, text: str) -> None:
        """A link of the report's menu, or the eye of a result."""
        found = f'[...document.querySelectorAll("nav li, nav tr")].find(e => e.textContent.trim() === {text!r})'
        self.wait(f'{found}?.querySelector("a")?.click() ?? !!{found}')

    def complaints(self) -> list[str]:
        """Errors on the console, and addresses outside this page."""
        said = []
        for event in self.events:
            method, content = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                said.append(str(content["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and content["type"] in ("error", "assert"):
                said.append(str(content["args"]))
            elif method == "Log.entryAdded" and content["entry"]["level"] == "error":
                said.append(str(content["entry"]))
            elif method == "Network.requestWillBeSent" and not content["request"]["url"].startswith(("file:", "data:")):
                said.append(content["request"]["url"])
        return said
