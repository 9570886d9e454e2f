"""quintet serve against clients that are broken, slow, gone or too many (reliability.md S1 to S4 and S7).

Each test fails without the protection it is about. QUINTET_DISCONNECTS: how many clients leave (200)."""

import contextlib
import http.client
import json
import os
import random
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import time

import e2e
from e2e import PATIENCE, QUINTET, wait_for
from serving import FREE, events, in_threads, seconds, serving, text_of, trained

LINE = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
BODY = b'{"prompt": "a", "max_tokens": 2}'


def health_seconds(server):
    """The best of some: the machine has other work too."""
    return min(seconds(lambda: server.get("/health")) for _ in range(8))


# S1.
def test_attacks_are_answered_and_cost_nothing(folder):
    with serving(trained(folder), "--max_body_bytes=100000") as server:
        server.complete(prompt="a", max_tokens=2)
        before = server.resident()
        length = b"Content-Length: %d\r\n" % len(BODY)
        chunked = b"Transfer-Encoding: chunked\r\n"
        for name, data, expect in [
                ("two lengths", LINE + length + b"Content-Length: 5\r\n\r\n" + BODY, [400]),
                ("length and chunks", LINE + length + chunked + b"\r\n0\r\n\r\n", [400]),
                ("chunks and length", LINE + chunked + length + b"\r\n0\r\n\r\n", [400]),
                ("a large body", LINE + b"Content-Length: 3000000\r\n\r\n" + b"x" * 3000000, [413]),
                ("a length that is no number", LINE + b"Content-Length: -1\r\n\r\n", [400]),
                ("a length beyond all", LINE + b"Content-Length: 99999999999999999999999\r\n\r\n", [400]),
                ("chunks without end", LINE + chunked + b"\r\n" + (b"4000\r\n" + b"x" * 0x4000 + b"\r\n") * 3000, [413]),
                ("a chunk size that is none", LINE + chunked + b"\r\nxyz\r\n", [400]),
                ("a chunk beyond all", LINE + chunked + b"\r\nffffffffffffffffff\r\n", [400, 413]),
                ("another encoding", LINE + b"Transfer-Encoding: gzip\r\n\r\n" + b"x" * 100, [501]),
                ("headers without end", LINE + b"A: b\r\n" * 300000, [431]),
                ("a long header", LINE + b"A: " + b"b" * 200000 + b"\r\n\r\n", [431]),
                ("a long URL", b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\n\r\n", [414]),
                ("a rather long URL", b"GET /" + b"a" * 8000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", [414]),
                ("NUL in a header", LINE + b"A: \0\r\n\r\n", [400]),
                ("NUL in the URL", b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n", [400]),
                ("bare line feeds", b"GET /health HTTP/1.1\nHost: x\n\n" + b"x" * 20000, [400, 431]),
                ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), [400]),
                ("no host", b"GET /health HTTP/1.1\r\n\r\n", [400]),
                ("two hosts", b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", [400]),
                ("another version", b"GET /health HTTP/3.7\r\nHost: a\r\n\r\n", [400, 505]),
                ("bytes that are no text", LINE + b"Content-Length: 4\r\nConnection: close\r\n\r\n\xff\xfe\xfd\xfc", [400])]:
            said = server.raw(data, timeout=10)
            status = int(said.split()[1]) if said.startswith(b"HTTP/1.1 ") else None
            assert status in expect, f"{name}: expected {expect}, got {said[:200]}"
            assert b'"error"' in said, f"{name}: {said[:300]}"
            assert health_seconds(server) < 0.25, name
        grown = server.resident() - before
        assert grown < 32 << 20, f"{grown >> 20} MiB more"
        # Two requests in one packet are two requests, and so are they if the second comes in pieces while the first is
        # answered.
        first = LINE + length + b"\r\n" + BODY
        last = LINE + length + b"Connection: close\r\n\r\n" + BODY
        said = server.raw(first + last)
        assert said.count(b"HTTP/1.1 200") == 2, said
        long = json.dumps({"prompt": "a", "n": 8, "max_tokens": 500, **FREE}).encode()
        with server.connect() as connection:
            connection.sendall(LINE + b"Content-Length: %d\r\n\r\n" % len(long) + long)
            for part in last[:10], last[10:60], last[60:]:
                time.sleep(0.05)
                connection.sendall(part)
            said = b""
            while data := connection.recv(65536):
                said += data
        assert said.count(b"HTTP/1.1 200") == 2, said[-500:]


# S2.
def test_slow_clients_hold_up_nobody(folder):
    with serving(trained(folder), "--header_seconds=3", "--body_seconds=4", "--write_seconds=2") as server:
        slow = [server.connect() for _ in range(384)]
        for i, connection in enumerate(slow):
            connection.sendall([b"G", LINE + b"Content-Length: 100\r\n\r\n{", b""][i % 3])
        assert health_seconds(server) < 0.1
        began = time.time()
        server.complete(prompt="a", max_tokens=4)
        assert time.time() - began < 3
        trickling = time.time() + 9
        while time.time() < trickling and server.metrics()["quintet_connections"] > 3:
            for connection in slow[:20]:  # a byte now and then buys no time
                with contextlib.suppress(OSError):
                    connection.sendall(b"E")
            time.sleep(0.3)
        assert server.metrics()["quintet_connections"] <= 3
        for i in 198, 199:
            assert b" 408 " in slow[i].recv(100), i
        assert slow[200].recv(100) == b""  # it asked for nothing
        for connection in slow:
            connection.close()


def test_a_client_that_does_not_read_loses_its_stream(folder):
    with serving(trained(folder), "--write_seconds=600", "--max_prompt_tokens=64", "--max_tokens=4000") as server:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", server.port))
            body = json.dumps({"prompt": "a", "n": 16, "max_tokens": 4000, "stream": True, "logprobs": 5, **FREE}).encode()
            deaf.sendall(LINE + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            wait_for(lambda: server.metrics()["quintet_running_requests"] == 1)
            other = list(events(server.open_stream(prompt="b", max_tokens=20, **FREE)))
            assert other[-1] == "[DONE]"
            wait_for(lambda: server.metrics()["quintet_requests_cancelled_total"] == 1, seconds=120)
            server.wait_idle()


def test_whole_answers_that_nobody_takes_and_idle_connections_end(folder):
    with serving(trained(folder), "--write_seconds=1", "--idle_seconds=1", "--max_tokens=4000") as server:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", server.port))
            body = json.dumps({"prompt": "a", "n": 16, "max_tokens": 2000, "logprobs": 5, **FREE}).encode()
            deaf.sendall(LINE + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            wait_for(lambda: server.metrics()["quintet_running_requests"] == 1)
            server.wait_idle()  # megabytes wait to be taken
            wait_for(lambda: server.metrics()["quintet_connections"] == 1, seconds=60)
        with server.connect() as idle:
            for _ in range(2):  # after a request, and after the next
                idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                assert b" 200 " in idle.recv(4096)
            began = time.time()
            assert idle.recv(1) == b"" and 0.5 < time.time() - began < 10, time.time() - began
        with server.connect() as patient:  # a byte of the next request came with the last
            patient.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n\r\n")
            wait_for(lambda: server.metrics()["quintet_connections"] == 1, seconds=30)


def test_clients_that_stay_after_the_last_answer_are_left_alone(folder):
    with serving(trained(folder), "--max_body_bytes=1000") as server:

        def may_finish():
            """What is sent while the answer is on its way resets nothing: that could take the answer back."""
            with server.connect() as sending:
                sending.sendall(LINE + b"Content-Length: 100000000\r\n\r\n")
                assert b" 413 " in sending.recv(4096)
                try:
                    for _ in range(3):
                        sending.sendall(b"x")
                        time.sleep(0.02)
                    return True
                except OSError:
                    return False

        assert any(may_finish() for _ in range(5))
        with server.connect() as silent, server.connect() as talking:
            silent.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            talking.sendall(LINE + b"Content-Length: 100000000\r\n\r\n")
            assert b" 200 " in silent.recv(4096) and b" 413 " in talking.recv(4096)
            end = time.time() + 20
            while server.metrics()["quintet_connections"] > 1:
                assert time.time() < end, server.metrics()["quintet_connections"]
                with contextlib.suppress(OSError):
                    talking.sendall(b"x")
                time.sleep(0.05)


# S3.
def test_a_flood_is_turned_away_politely(folder):
    with serving(trained(folder), "--max_queue=4", "--max_batch=4", "--max_n=4") as server:
        asked = dict(prompt="words: 9", temperature=0, max_tokens=30, **FREE)
        want = text_of(server.complete(**asked))
        files = server.files()
        answers = in_threads(64, lambda i: [server.request("POST", "/v1/completions", asked) for _ in range(4)])
        assert health_seconds(server) < 0.25
        statuses = []
        for status, answer, headers in (one for all_of in answers for one in all_of):
            statuses.append(status)
            if status == 200:
                assert text_of(answer) == want
            else:
                assert status == 503 and headers["Retry-After"] and answer["error"]["code"] == "queue_full", answer
        assert statuses.count(200) >= 8 and statuses.count(503) >= 1, statuses
        server.wait_idle()
        wait_for(lambda: server.files() <= files)


def test_a_request_of_too_many_prompts_leaves_nothing_in_the_queue(folder):
    with serving(trained(folder), "--max_queue=3", "--max_tokens=4000", "--max_n=16") as server:
        began = time.time()
        server.post("/v1/completions", expect=503, prompt=["a"] * 40, n=16, max_tokens=4000, **FREE)
        server.wait_idle()
        assert time.time() - began < 2 and server.metrics()["quintet_steps_total"] < 2000


def test_files_run_out_and_come_back(folder):
    model = trained(folder)
    with serving(model) as server:
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        taken = {int(name) for name in os.listdir(f"/proc/{server.process.pid}/fd")}
        first_free = min(set(range(len(taken) + 1)) - taken)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (first_free, limits[1]))
        with server.connect() as waiting:
            waiting.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            before = server.cpu_seconds()
            time.sleep(2)
            assert server.cpu_seconds() - before < 0.1, "it asks for connections without a pause"
            assert not select.select([waiting], [], [], 0)[0], "it was answered without a file"
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)
            assert b" 200 " in waiting.recv(4096)
    few = f"ulimit -n 64; exec {QUINTET} serve --model={model} --port=0"
    done = subprocess.run(["bash", "-c", few], capture_output=True, text=True, timeout=60)
    assert done.returncode == 4 and "--max_connections=512" in done.stderr and "ulimit -n" in done.stderr, done
    with serving(model, program=("bash", "-c", f'ulimit -Sn 64; exec {QUINTET} "$@"', "bash")) as server:
        idle = [server.connect() for _ in range(200)]
        wait_for(lambda: server.metrics()["quintet_connections"] >= 200)
        for connection in idle:
            connection.close()


def test_too_many_connections_leave_room_for_health(folder):
    with serving(trained(folder), "--max_connections=20") as server:
        files = server.files()
        idle = [server.connect() for _ in range(25)]
        time.sleep(0.2)
        status, answer, headers = server.request("POST", "/v1/completions", {"prompt": "a"})
        assert status == 503 and headers["Retry-After"] and "connections" in answer["error"]["message"], answer
        server.get("/health")
        server.get("/ready")
        more = [server.connect() for _ in range(60)]
        time.sleep(0.2)
        assert server.files() <= files + 20 + 32
        for connection in idle + more:
            connection.close()
        wait_for(lambda: server.request("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200)


# S4.
def test_requests_of_clients_that_leave_end_with_them(folder):
    count = int(os.environ.get("QUINTET_DISCONNECTS", "200"))
    chance = random.Random(1)
    with serving(trained(folder), "--max_batch=8", "--max_n=8", "--max_tokens=8000", "--max_queue=1000") as server:
        server.complete(prompt="a", max_tokens=4)
        # Some end their request with more than was announced, as old clients do.
        plans = [(chance.random() * 0.3, chance.random() < 0.5, chance.randrange(1, 4), chance.choice([b"", b"\r\n"]))
                 for _ in range(count)]

        def leave(plan):
            wait, stream, n, more = plan
            body = json.dumps({"prompt": "a" * 50, "n": n, "max_tokens": 8000, "stream": stream, **FREE}).encode()
            with server.connect() as connection:
                connection.sendall(LINE + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                time.sleep(wait / 2 * PATIENCE)  # or a slow server counts few: it has not read the others' requests
                connection.sendall(more)
                time.sleep(wait / 2 * PATIENCE)

        for begin in range(0, count, 200):
            for error in in_threads(min(200, count - begin), lambda i: leave(plans[begin + i])):
                assert error is None, error
        began = time.time()
        wait_for(lambda: server.metrics()["quintet_connections"] <= 2)  # one of them asks; some close after their requests
        server.wait_idle()
        # Run to their ends these would take minutes.
        assert time.time() - began < 10, time.time() - began
        wait_for(lambda: server.metrics()["quintet_requests_cancelled_total"] >= count * 0.9)
        server.complete(prompt="a", max_tokens=4)


def test_a_client_that_has_left_before_its_turn_is_not_served(folder):
    with serving(trained(folder), "--max_tokens=8000") as server:
        long = json.dumps({"prompt": [5] * 300000}).encode()  # takes a while to be refused
        body = json.dumps({"prompt": "a", "n": 16, "max_tokens": 8000, **FREE}).encode()
        for count in range(1, 4):
            with server.connect() as ahead:
                ahead.sendall(LINE + b"Content-Length: %d\r\n\r\n" % len(long) + long)
                with server.connect() as leaving:
                    leaving.sendall(LINE + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                assert b" 400 " in ahead.recv(4096)
            wait_for(lambda: server.metrics()["quintet_requests_cancelled_total"] == count, seconds=5)
        server.wait_idle()
        assert server.metrics()["quintet_steps_total"] < 2000


def test_time_runs_out_for_long_requests(folder):
    with serving(trained(folder), "--request_seconds=0.5", "--max_tokens=4000") as server:
        body = dict(prompt="a", n=8, max_tokens=4000, **FREE)
        assert server.post("/v1/completions", expect=504, **body)["error"]["code"] == "timeout"
        last = list(events(server.open_stream(**body)))[-1]
        assert json.loads(last)["error"]["code"] == "timeout", last
        server.wait_idle()


# S6: a network's pass needs memory, and there is none.
def test_a_pass_that_fails_is_an_error_of_its_request_and_the_third_in_a_row_the_end(folder):
    with serving(trained(folder)) as server:
        asked = dict(prompt="words: 7", temperature=0, max_tokens=4)
        want = text_of(server.complete(**asked))

        def allow(more):
            size = next(int(line.split()[1]) << 10 for line in open(f"/proc/{server.process.pid}/status")
                        if line.startswith("VmSize"))
            resource.prlimit(server.process.pid, resource.RLIMIT_AS, (size + (more << 20), resource.RLIM_INFINITY))
        infinite = 1 << 20
        allow(8)
        for _ in range(2):
            assert "memory" in server.post("/v1/completions", expect=500, **asked)["error"]["message"]
        server.get("/ready")
        allow(infinite)
        assert text_of(server.complete(**asked)) == want
        allow(8)
        for _ in range(3):
            server.post("/v1/completions", expect=500, **asked)
        assert "device has failed" in server.get("/ready", expect=503)["error"]["message"]
        server.post("/v1/completions", expect=503, **asked)
        server.get("/health")
        assert server.process.wait(timeout=30) == 4
        server.stop = lambda: None


# S7.
def test_sigterm_lets_running_requests_end(folder):
    with serving(trained(folder), "--max_tokens=200") as server:
        streams = [server.open_stream(prompt="a", max_tokens=150, **FREE) for _ in range(20)]
        idle = server.connect()
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: idle.recv(1) == b"")
        for take in server.connect, lambda: server.get("/ready"):
            try:
                take()
                raise AssertionError("a new connection while draining")
            except OSError:
                pass
        for end in in_threads(20, lambda i: list(events(streams[i]))[-1]):
            assert end == "[DONE]", end
        assert server.process.wait(timeout=30) == 0
        idle.close()
        server.stop = lambda: None


def test_sigterm_cuts_what_takes_too_long_with_an_error(folder):
    with serving(trained(folder), "--max_tokens=4000", "--drain_seconds=1") as server:
        streams = [server.open_stream(prompt="a", n=4, max_tokens=4000, **FREE) for _ in range(12)]
        server.process.send_signal(signal.SIGTERM)
        for end in in_threads(12, lambda i: list(events(streams[i]))[-1]):
            assert end == "[DONE]" or json.loads(end)["error"]["code"] == "shutting_down", end
        assert server.process.wait(timeout=30) == 0
        server.stop = lambda: None


def test_what_arrives_while_draining_is_refused_and_nobody_holds_up_the_end(folder):
    with serving(trained(folder), "--max_tokens=4000", "--drain_seconds=1", "--write_seconds=600", "--max_batch=16") as server:
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", server.port))
        body = json.dumps({"prompt": "a", "n": 16, "max_tokens": 500, "logprobs": 5, **FREE}).encode()
        deaf.sendall(LINE + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: server.metrics()["quintet_running_requests"] == 1)
        server.wait_idle()  # megabytes wait to be taken
        begun = {}  # connections whose request has not come whole
        for path, method in (("/v1/completions", b"POST"), ("/ready", b"GET"), ("/health", b"GET")):
            begun[path] = server.connect()
            begun[path].sendall(method + b" %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(BODY)))
        wait_for(lambda: server.metrics()["quintet_connections"] == 5)
        began = time.time()
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "finishing" in "".join(server.log))
        for path, status in (("/v1/completions", b" 503 "), ("/ready", b" 503 "), ("/health", b" 200 ")):
            begun[path].sendall(BODY)
            said = begun[path].recv(4096)
            assert status in said and (status == b" 200 " or b"shutting down" in said), (path, said)
            assert b"Connection: close" in said, said
        assert server.process.wait(timeout=30) == 0
        assert time.time() - began < 20
        deaf.close()
        server.stop = lambda: None


def test_a_second_signal_ends_it_at_once(folder):
    with serving(trained(folder), "--max_tokens=4000") as server:
        streams = [server.open_stream(prompt="a", n=8, max_tokens=4000, **FREE) for _ in range(4)]
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "again to quit" in "".join(server.log))
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=5) == 128 + signal.SIGINT
        assert streams
        server.stop = lambda: None


def test_it_outlives_who_reads_its_log(folder):
    model = trained(folder)
    with subprocess.Popen([QUINTET, "serve", f"--model={model}", "--port=0"], stderr=subprocess.PIPE) as process:
        try:
            port = next(int(found.group(1)) for line in process.stderr if (found := re.search(rb"http://[\w.]+:(\d+)/", line)))
            process.stderr.close()
            for _ in range(3):  # each is logged
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("POST", "/v1/completions", BODY)
                assert connection.getresponse().status == 200
                connection.close()
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()


def test_a_reset_connection_harms_nobody(folder):
    with serving(trained(folder)) as server:
        for _ in range(50):
            connection = server.connect()
            connection.sendall(LINE + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        server.wait_idle()
        server.complete(prompt="a", max_tokens=2)


e2e.run(globals())
