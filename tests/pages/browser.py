"""A headless Chromium on two pipes: its DevTools protocol, as far as tests of pages need it, on no port.

    with Browser(find_browser()) as browser:
        page = browser.open(path, width=390, dark=True)
        page.evaluate("document.title")
        page.complaints()    # what scripts, console and network had to complain of so far
"""
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

PATIENCE_S = 60  # for one answer


def find_browser():
    """The path of a Chromium, or None."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # its last processes may still write
        self.log = pathlib.Path(self.folder.name) / "log"
        commands, self.to = os.pipe()
        self.answers, to_us = os.pipe()
        # Chromium wants them as 3 and 4, where this process may have something else: bash puts them there.
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, 100) for end in (commands, to_us)]
        os.close(commands)
        os.close(to_us)
        options = ["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-sync",
                   f"--user-data-dir={self.folder.name}/profile", "about:blank"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"', "bash", *map(str, theirs), program, *options],
                pass_fds=theirs, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        for end in theirs:
            os.close(end)
        self.buffer = b""
        self.number = 0
        self.results = {}  # by the number of the call
        self.pages = {}    # by session

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.to)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # the group that was made for it
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.answers)
        self.folder.cleanup()

    def send(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        return self.number

    def call(self, method, session=None, **parameters):
        """The answer. Raises RuntimeError where there is none, or an error."""
        number = self.send(method, session, **parameters)
        self.wait_until(lambda: number in self.results, method)
        answer = self.results.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def wait_until(self, holds, what):
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            self.receive(deadline, what)

    def receive(self, deadline, what):
        ready, _, _ = select.select([self.answers], [], [], max(0, deadline - time.monotonic()))
        data = os.read(self.answers, 1 << 20) if ready else b""
        if not data:
            state = "it says nothing" if not ready else "it has ended"
            raise RuntimeError(f"the browser, asked for {what}: {state}; {self.log.read_text(errors='replace')[-2000:]}")
        *messages, self.buffer = (self.buffer + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.results[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].on_event(message["method"], message["params"])

    def open(self, path, width, dark):
        return Page(self, path, width, dark)


class Page:
    """A page in a window of its own that has been loaded."""

    def __init__(self, browser, path, width, dark):
        self.browser = browser
        self.found = []
        self.loaded = False
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        browser.pages[self.session] = self
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.show_at(width, dark)
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        browser.wait_until(lambda: self.loaded, "a page to be loaded")

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def show_at(self, width, dark):
        """In a window of so many pixels, for somebody who likes it dark or light."""
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def evaluate(self, expression):
        """Its value, once promises are kept. What it throws is a complaint, and None."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            self.complain(answer["exceptionDetails"])
        return answer["result"].get("value")

    def complain(self, details):
        self.found.append("script: " + details.get("exception", {}).get("description", details.get("text", "?")))

    def on_event(self, method, parameters):
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complain(parameters["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            said = [str(argument.get("value", argument.get("description"))) for argument in parameters["args"]]
            self.found.append("console: " + " ".join(said))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.found.append("log: " + parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.found.append("it asks for " + url)
        elif method == "Page.javascriptDialogOpening":
            self.found.append("a dialog: " + parameters["message"])
            self.browser.send("Page.handleJavaScriptDialog", self.session, accept=False)

    def complaints(self):
        self.evaluate("new Promise((resolve) => setTimeout(resolve, 0))")  # what is under way
        return self.found

    def close(self):
        del self.browser.pages[self.session]
        self.browser.call("Target.closeTarget", targetId=self.target)
