"""A headless Chromium for tests of pages, by the DevTools protocol over two pipes. Standard library only."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile

import e2e

PATIENCE = 60 * e2e.PATIENCE  # seconds for a message


class Browser:
    def __init__(self, program, profile):
        to_it, self.write_end = os.pipe()
        self.read_end, from_it = os.pipe()

        def as_three_and_four():  # the numbers that --remote-debugging-pipe reads and writes
            os.dup2(os.dup(to_it), 3)
            os.dup2(os.dup(from_it), 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=as_three_and_four, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_it)
        os.close(from_it)
        self.calls, self.session, self.faults, self.loaded = 0, None, [], False

    def attach(self):
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def message(self):
        """The next message of the browser; what went wrong in the page is kept in `faults`."""
        text = b""
        while not text.endswith(b"\0"):
            assert select.select([self.read_end], [], [], PATIENCE)[0], f"no word of the browser for {PATIENCE} s"
            byte = os.read(self.read_end, 1)
            if not byte and self.calls == 1:
                e2e.skip("the browser does not start here")
            assert byte, f"the browser ended: {self.process.wait()}"
            text += byte
        one = json.loads(text[:-1])
        details = one.get("params", {})
        if one.get("method") == "Runtime.exceptionThrown":
            self.faults.append(details["exceptionDetails"].get("exception", {}).get("description") or details["exceptionDetails"]["text"])
        if one.get("method") == "Log.entryAdded" and details["entry"]["level"] == "error":
            self.faults.append(details["entry"]["text"])
        self.loaded |= one.get("method") == "Page.loadEventFired"
        return one

    def call(self, method, **parameters):
        self.calls += 1
        request = {"id": self.calls, "method": method, "params": parameters, **({"sessionId": self.session} if self.session else {})}
        with contextlib.suppress(BrokenPipeError):  # message() tells that it ended
            os.write(self.write_end, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.calls:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def open(self, address, width):
        """Loads a page at this width, in CSS pixels; waits for its load event."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600)
        self.loaded = False
        answer = self.call("Page.navigate", url=str(address))
        assert "errorText" not in answer, (address, answer)
        while not self.loaded:
            self.message()

    def eval(self, script):
        """The value of a script in the page; promises are waited for."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, (script, answer["exceptionDetails"])
        return answer["result"].get("value")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.read_end)
        os.close(self.write_end)


@contextlib.contextmanager
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        e2e.skip("needs a browser (Debian: chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        one = Browser(program, profile)
        try:
            one.attach()
            yield one
        finally:
            one.close()
