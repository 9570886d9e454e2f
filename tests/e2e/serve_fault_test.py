"""quintet serve against clients that are broken, slow, gone or too many (docs/reference/faults.md S1 to S4 and S7).

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

LINE = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
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
                ("encoded and in chunks", LINE + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", [501]),
                ("chunks of chunks", LINE + chunked + chunked + b"\r\n0\r\n\r\n", [400, 501]),
                ("chunks in HTTP/1.0", LINE.replace(b"1.1", b"1.0") + chunked + b"\r\n0\r\n\r\n", [400]),
                ("a zipped body", LINE + b"Content-Encoding: gzip\r\n" + length + b"\r\n" + BODY, [415]),
                ("an empty host", b"GET /health HTTP/1.1\r\nHost:\r\n\r\n", [400]),
                ("a host that is none", b"GET /health HTTP/1.1\r\nHost: a/b\r\n\r\n", [400]),
                ("a user's URL", b"GET http://a@localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", [400]),
                ("another's name", b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", [403]),
                ("headers without end", LINE + b"A: b\r\n" * 300000, [431]),
                ("a long header", LINE + b"A: " + b"b" * 200000 + b"\r\n\r\n", [431]),
                ("a long URL", b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\n\r\n", [414]),
                ("a rather long URL", b"GET /" + b"a" * 8000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", [414]),
                ("NUL in a header", LINE + b"A: \0\r\n\r\n", [400]),
                ("NUL in the URL", b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n", [400]),
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
                time.sleep(0.05)  # delay: packets of their own
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

        def are_gone():
            for connection in slow[:20]:  # a byte now and then buys no time
                with contextlib.suppress(OSError):
                    connection.sendall(b"E")
            time.sleep(0.3)  # delay: a byte now and then
            return server.metrics()["quintet_connections"] <= 3

        wait_for(are_gone, seconds=20)
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
                idle.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b" 200 " in idle.recv(4096)
            began = time.time()
            assert idle.recv(1) == b"" and 0.5 < time.time() - began < 10, time.time() - began
        with server.connect() as patient:  # a byte of the next request came with the last
            patient.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n\r\n")
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
                        time.sleep(0.02)  # delay: packets of their own
                    return True
                except OSError:
                    return False

        assert any(may_finish() for _ in range(5))
        with server.connect() as silent, server.connect() as talking:
            silent.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            talking.sendall(LINE + b"Content-Length: 100000000\r\n\r\n")
            assert b" 200 " in silent.recv(4096) and b" 413 " in talking.recv(4096)
            end = time.time() + 20
            while server.metrics()["quintet_connections"] > 1:
                assert time.time() < end, server.metrics()["quintet_connections"]
                with contextlib.suppress(OSError):
                    talking.sendall(b"x")
                time.sleep(0.05)  # delay: packets of their own


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
    with serving(trained(folder), "--max_queue=3", "--max_tokens=4000", "--max_n=16", "--answers_mib=4096") as server:
        server.post("/v1/completions", expect=503, prompt=["a"] * 40, n=16, max_tokens=4000, **FREE)
        server.wait_idle()
        assert server.metrics()["quintet_steps_total"] < 2000


def test_files_run_out_and_come_back(folder):
    model = trained(folder)
    with serving(model) as server:
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        taken = {int(name) for name in os.listdir(f"/proc/{server.process.pid}/fd")}
        first_free = min(set(range(len(taken) + 1)) - taken)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (first_free, limits[1]))
        with server.connect() as waiting:
            waiting.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            before = server.cpu_seconds()
            time.sleep(2)  # delay: in which it uses no processor
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


def asks(server, path, address="127.0.0.1", body=None):
    """Status and headers that a client at this address of the loopback network gets."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20, source_address=(address, 0))
    with contextlib.closing(connection):
        connection.request("POST" if body else "GET", path, body)
        answer = connection.getresponse()
        answer.read()
        return answer.status, dict(answer.getheaders())


def test_one_address_cannot_take_all_connections(folder):
    with serving(trained(folder), "--max_connections=40", "--max_connections_per_address=10") as server:
        mine = [socket.create_connection(("127.0.0.1", server.port), source_address=("127.0.0.2", 0)) for _ in range(10)]
        wait_for(lambda: server.metrics()["quintet_connections"] >= 11)
        status, headers = asks(server, "/v1/completions", "127.0.0.2", BODY)
        assert status == 503 and headers["Retry-After"] and headers["Connection"] == "close", headers
        assert asks(server, "/health", "127.0.0.2")[0] == 200
        assert asks(server, "/v1/completions", "127.0.0.3", BODY)[0] == 200
        mine.pop().close()
        wait_for(lambda: asks(server, "/v1/completions", "127.0.0.2", BODY)[0] == 200)
        for connection in mine:
            connection.close()


def test_a_thousand_connections_reset_nobody(folder):
    with serving(trained(folder), "--max_connections=500", "--header_seconds=60") as server:
        idle = [server.connect() for _ in range(1000)]
        for _ in range(20):
            assert asks(server, "/health")[0] == 200
        status, headers = asks(server, "/v1/completions", body=BODY)
        assert status == 503 and headers["Retry-After"], headers
        turned_away = 0
        for connection in idle[500:]:
            connection.settimeout(20)
            said = b""
            while part := connection.recv(4096):  # a reset would be an error here
                said += part
            turned_away += said.startswith(b"HTTP/1.1 503 ") and b"500 connections are open" in said
        assert turned_away == 500, turned_away
        for connection in idle:
            connection.close()


def test_too_many_connections_leave_room_for_health(folder):
    with serving(trained(folder), "--max_connections=20") as server:
        files = server.files()
        idle = [server.connect() for _ in range(25)]
        wait_for(lambda: server.files() >= files + 20)
        status, answer, headers = server.request("POST", "/v1/completions", {"prompt": "a"})
        assert status == 503 and headers["Retry-After"] and "connections" in answer["error"]["message"], answer
        server.get("/health")
        server.get("/ready")
        more = [server.connect() for _ in range(60)]
        time.sleep(0.2)  # delay: in which it could take more
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
                # delay: clients leave at moments drawn by chance
                time.sleep(wait / 2 * PATIENCE)  # or a slow server counts few: it has not read the others' requests
                connection.sendall(more)
                time.sleep(wait / 2 * PATIENCE)  # delay: as above

        for begin in range(0, count, 200):
            for error in in_threads(min(200, count - begin), lambda i: leave(plans[begin + i])):
                assert error is None, error
        began = time.time()
        wait_for(lambda: server.metrics()["quintet_connections"] <= 2)  # one of them asks; some close after their requests
        server.wait_idle()
        # Run to their ends these would take minutes.
        assert time.time() - began < 30, time.time() - began
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


def test_reading_a_large_request_ends_with_its_client_and_its_time(folder):
    large = json.dumps({"prompt": [5] * 2_000_000}).encode()
    request = LINE + b"Content-Length: %d\r\n\r\n" % len(large) + large
    name = 'quintet_requests_total{endpoint="/v1/completions",status="400"}'
    with serving(trained(folder), "--max_body_bytes=10000000", "--max_tokens=8000") as server:
        for _ in range(4):
            with server.connect() as leaving:
                leaving.sendall(request)
        wait_for(lambda: server.metrics()["quintet_requests_cancelled_total"] == 4)
        assert name not in server.metrics()
        four_that_left = server.cpu_seconds()
        assert server.request("POST", "/v1/completions", large)[0] == 400
        assert four_that_left < 2 * (server.cpu_seconds() - four_that_left), four_that_left
        # Answers that are made meanwhile do not wait for it.
        def answers_meanwhile():
            with contextlib.ExitStack() as connections:
                slow, *quick = (connections.enter_context(server.connect()) for _ in range(17))
                slow.sendall(request[:-1])
                before = server.metrics()["quintet_steps_total"]
                for number, client in enumerate(quick):
                    asked = json.dumps({"prompt": "a", "max_tokens": 500 * (number + 1), **FREE}).encode()
                    client.sendall(LINE + b"Content-Length: %d\r\n\r\n" % len(asked) + asked)
                wait_for(lambda: server.metrics()["quintet_steps_total"] > before)
                waiting = [client for client in quick if client not in select.select(quick, [], [], 0)[0]]
                slow.sendall(request[-1:])
                answered = []
                while slow not in (ready := select.select([slow, *waiting], [], [], 60)[0]):
                    assert ready, "no answer within 60 s"
                    answered += ready
                    waiting = [client for client in waiting if client not in ready]
                return len(answered)

        counts = [answers_meanwhile() for _ in range(5)]
        assert sum(counts) > 3, counts
    with serving(trained(folder), "--max_body_bytes=10000000", "--request_seconds=0.02") as server:
        status, answer, _ = server.request("POST", "/v1/completions", large)
        assert status == 504 and answer["error"]["code"] == "timeout", answer


def test_time_runs_out_for_long_requests(folder):
    with serving(trained(folder), "--request_seconds=0.5", "--max_tokens=4000") as server:
        body = dict(prompt="a", n=8, max_tokens=4000, **FREE)
        assert server.post("/v1/completions", expect=504, **body)["error"]["code"] == "timeout"
        last = list(events(server.open_stream(**body)))[-1]
        assert json.loads(last)["error"]["code"] == "timeout", last
        server.wait_idle()


def allow(server, mib):
    """So much memory more than the server has now."""
    size = next(int(line.split()[1]) << 10 for line in open(f"/proc/{server.process.pid}/status") if line.startswith("VmSize"))
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (size + (mib << 20), resource.RLIM_INFINITY))


# S6: a network's pass needs memory, and there is none.
def test_a_pass_without_memory_is_an_error_of_its_request_and_never_the_servers_end(folder):
    with serving(trained(folder)) as server:
        asked = dict(prompt="words: 7", temperature=0, max_tokens=4)
        want = text_of(server.complete(**asked))
        allow(server, 0)
        for _ in range(6):
            error = server.post("/v1/completions", expect=503, **asked)["error"]
            assert error["code"] == "out_of_memory" and "memory" in error["message"], error
        server.get("/ready")
        allow(server, 1 << 20)
        assert text_of(server.complete(**asked)) == want


def test_large_answers_under_a_limit_of_memory_end_alone(folder):
    attack = dict(prompt=["a"] * 64, n=16, max_tokens=200, logprobs=5, **FREE)
    with serving(trained(folder)) as server:
        asked = dict(prompt="words: 7", temperature=0, max_tokens=4)
        want = text_of(server.complete(**asked))
        refused = 0
        for stream in (False, True):
            allow(server, 64)
            if stream:
                error = None
                with contextlib.suppress(http.client.HTTPException, OSError):  # one that is cut has ended, too
                    last = list(events(server.open_stream(**attack)))[-1]
                    error = None if last == "[DONE]" else json.loads(last).get("error")
            else:
                status, answer, _ = server.request("POST", "/v1/completions", attack)
                assert status in (200, 503), answer
                error = answer.get("error")
            refused += error is not None
            assert error is None or error["code"] == "out_of_memory", error
            server.wait_idle()
            server.get("/ready")
            allow(server, 16)  # besides what the attack has left in pieces
            assert text_of(server.complete(**asked)) == want
        assert refused, "the attack took too little memory to be one"


def test_what_answers_may_hold_is_counted_before_the_work(folder):
    model, flags = trained(folder), ("--answers_mib=8", "--max_tokens=40000", "--max_prompt_tokens=2000")
    with serving(model, *flags, "--request_seconds=0.1") as server:
        large = dict(prompt=["a"] * 64, n=16, max_tokens=200, logprobs=5)
        for field, asked in {"logprobs": dict(prompt=["a"] * 64, max_tokens=30, logprobs=20),
                             "n": dict(prompt=["a"] * 64, n=16, max_tokens=200), "prompt": dict(prompt=["a"] * 64, max_tokens=1000),
                             "best_of": dict(prompt=["a"] * 64, best_of=16, max_tokens=200),
                             "num_beams": dict(prompt=["a"] * 64, num_beams=16, max_tokens=100),
                             "max_tokens": dict(prompt="a", max_tokens=40000)}.items():
            error = server.post("/v1/completions", expect=400, **asked)["error"]
            assert error["param"] == field and error["code"] == "answer_too_large" and "--answers_mib" in error["message"], (field, error)
            good = re.search(r"; (\w+) would do", error["message"]).group(1)
            good = -1 if good == "none" else int(good)
            for value, too_large in ((good, False), (good + 1, True)):
                asked[field] = ["a"] * value if field == "prompt" else None if value < 0 else value
                def answered():  # 503: what the request before held is not free yet
                    nonlocal status, answer
                    status, answer, _ = server.request("POST", "/v1/completions", asked)
                    return status != 503

                status = answer = None
                wait_for(answered)
                assert status == 400 if too_large else status in (200, 504), (field, value, status, answer)
        assert server.post("/v1/completions", expect=400, **large)["error"]["code"] == "answer_too_large"
        scored = dict(prompt="a", target=["a" * 500] * 64, logprobs=20)
        assert server.post("/v1/score", expect=400, **scored)["error"]["param"] == "logprobs"
        assert server.post("/v1/score", expect=400, **{**scored, "logprobs": 0, "target": ["a" * 2000] * 64})["error"]["param"] == "target"
    with serving(model, *flags) as server:
        server.post("/v1/completions", expect=400, **large)
        assert server.metrics()["quintet_steps_total"] == 0
        # Each is small enough by itself.
        some = dict(prompt="a", n=8, max_tokens=4000, **FREE)
        streams = [server.open_stream(**some) for _ in range(2)]
        status, answer, headers = server.request("POST", "/v1/completions", {"stream": True, **some})
        assert status == 503 and answer["error"]["code"] == "answers_full" and headers["Retry-After"], answer
        server.complete(prompt="a", max_tokens=4)
        for stream in streams:
            stream.connection.close()
            stream.close()
        server.wait_idle()
        wait_for(lambda: server.request("POST", "/v1/completions", {"prompt": "a", "n": 15, "max_tokens": 1000, "stream": True})[0] == 200)


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
            begun[path].sendall(method + b" %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(BODY)))
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
        assert server.process.wait(timeout=15) == 128 + signal.SIGINT
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
