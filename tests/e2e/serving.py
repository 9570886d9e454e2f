"""A `quintet serve` for tests: starts it, talks to it, reads its metrics. Standard library only."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

from e2e import QUINTET, quintet, tiny, wait_for

FREE = {"logit_bias": {"1": -100}}  # no end token: answers are as long as max_tokens


def trained(folder):
    quintet(*tiny(folder / "tiny", 4))
    return folder / "tiny"


class Server:
    def __init__(self, model, *flags, program=(QUINTET,)):
        environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
        self.process = subprocess.Popen([*program, "serve", f"--model={model}", "--port=0", *flags], env=environment,
                                        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"http://[\w.]+:(\d+)/", line):
                self.port = int(found.group(1))
                break
        else:
            raise AssertionError(f"serve ended: {self.process.wait()}: {''.join(self.log)}")
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def request(self, method, path, body=None, headers=None, timeout=120):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            body = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
            kind = answer.getheader("Content-Type", "")
            return answer.status, json.loads(text) if kind == "application/json" else text, dict(answer.getheaders())
        finally:
            connection.close()

    def post(self, path, expect=200, headers=None, **body):
        status, answer, _ = self.request("POST", path, body, headers)
        assert status == expect, f"{status}: {answer}"
        return answer

    def complete(self, **body):
        return self.post("/v1/completions", **body)

    def get(self, path, expect=200):
        status, answer, _ = self.request("GET", path)
        assert status == expect, f"{status}: {answer}"
        return answer

    def metrics(self):
        lines = [line for line in self.get("/metrics").splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def open_stream(self, path="/v1/completions", **body):
        """A connection whose answer has begun."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", path, json.dumps({"stream": True, **body}))
        answer = connection.getresponse()
        answer.connection = connection  # or it closes
        return answer

    def raw(self, data=b"", timeout=20):
        """What the server says to these bytes until it closes."""
        with self.connect(timeout) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(data)
            said = b""
            with contextlib.suppress(OSError):
                while part := connection.recv(65536):
                    said += part
            return said

    def connect(self, timeout=20):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def resident(self):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) << 10

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_seconds(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait_idle(self):
        """Nothing runs, waits or holds memory."""
        wait_for(lambda: (m := self.metrics())["quintet_running_requests"] == 0 and m["quintet_queue_requests"] == 0
                 and m['quintet_cache_bytes{kind="reserved"}'] == 0)

    def stop(self, expect=0):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        self.reader.join(timeout=10)
        assert code == expect, f"exit {code}: {''.join(self.log)}"


@contextlib.contextmanager
def serving(model, *flags, program=(QUINTET,)):
    server = Server(model, *flags, program=program)
    try:
        yield server
        server.stop()
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


def events(answer):
    """The data of a stream's events."""
    for line in answer:
        if line.startswith(b"data: "):
            yield line[len(b"data: "):].strip().decode()


def text_of(answer):
    return [choice["text"] for choice in answer["choices"]]


def in_threads(count, task):
    """task(i) for each i at the same time; what they return or raise."""
    results = [None] * count

    def run(i):
        try:
            results[i] = task(i)
        except Exception as error:  # the caller judges
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def seconds(task):
    began = time.time()
    task()
    return time.time() - began
