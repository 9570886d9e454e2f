"""quintet serve: what OpenAI's clients say is understood, what it answers is right, wrong requests are named."""

import base64
import json
import os
import re
import struct
import time

import e2e
from device_test import need_emulator
from e2e import quintet, wait_for
from serving import FREE, events, in_threads, serving, text_of, trained

PROMPTS = ["words: 1234", "number: nine", "words: 7", "one two"]


def test_answers_are_those_of_generate_alone_and_together(folder):
    model = trained(folder)
    want = quintet("generate", f"--model_dir={model}", "--temperature=0", "--max_decode_len=12", "--format=json",
                   *PROMPTS).out
    want = [json.loads(line)["prediction"] for line in want.splitlines()]
    with serving(model) as server:
        together = server.complete(prompt=PROMPTS, temperature=0, max_tokens=12)
        assert text_of(together) == want, together
        assert [choice["index"] for choice in together["choices"]] == [0, 1, 2, 3]
        alone = in_threads(12, lambda i: server.complete(prompt=PROMPTS[i % 4], temperature=0, max_tokens=12))
        for i, answer in enumerate(alone):
            assert text_of(answer) == [want[i % 4]], answer
        assert together["object"] == "text_completion" and together["model"] == "tiny", together
        assert together["usage"]["prompt_tokens"] == sum(len(prompt) + 1 for prompt in PROMPTS), together
        assert server.get("/v1/models")["data"][0]["id"] == "tiny"
        assert server.get("/v1/models/tiny")["id"] == "tiny"
        assert "<title>Quintet</title>" in server.get("/")
        # A request is counted once its answer is sent.
        wait_for(lambda: server.metrics()['quintet_requests_total{endpoint="/v1/completions",status="200"}'] == 13)
        metrics = server.metrics()
        assert metrics["quintet_generated_tokens_total"] > 0 and metrics["quintet_steps_total"] > 0
        # What the page shows is there, and its tokens are those of answers, not rows of beams.
        page = server.get("/")
        shown = set(re.findall(r"values(?:\.|\[')(quintet_\w+(?:\{[^']*\})?)", page))
        assert len(shown) > 5 and shown <= metrics.keys(), shown - metrics.keys()
        assert "--accent:" in page and "/*style.css*/" not in page, "the style is not in the page"
        before = metrics["quintet_generated_tokens_total"]
        usage = server.complete(prompt=PROMPTS[0], num_beams=4, n=1, max_tokens=12)["usage"]
        wait_for(lambda: server.metrics()["quintet_generated_tokens_total"] == before + usage["completion_tokens"])


def test_parameters_do_what_they_say(folder):
    with serving(trained(folder)) as server:
        ids = server.complete(prompt=[10, 11, 12, 1], temperature=0, max_tokens=4, **FREE)
        assert ids["usage"] == {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8}, ids
        assert ids["choices"][0]["finish_reason"] == "length"
        sample = dict(prompt="words: 5", temperature=1.5, max_tokens=12, n=4, **FREE)
        first, again, other = (server.complete(seed=seed, **sample) for seed in (7, 7, 8))
        assert text_of(first) == text_of(again) and text_of(first) != text_of(other)
        assert len(set(text_of(first))) > 1, first
        best = server.complete(**{**sample, "n": 2, "best_of": 8, "logprobs": 0}, seed=3)
        means = [sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["tokens"]) for c in best["choices"]]
        assert len(means) == 2 and means == sorted(means, reverse=True), best
        plain = text_of(server.complete(prompt="a", temperature=0.8, seed=1, max_tokens=30, **FREE))[0]
        stop = plain[5:7]
        cut = server.complete(prompt="a", temperature=0.8, seed=1, max_tokens=30, stop=stop, **FREE)["choices"][0]
        assert cut["text"] == plain[:plain.index(stop)] and cut["finish_reason"] == "stop", (plain, cut)
        probed = server.complete(prompt="a", temperature=0, max_tokens=5, logprobs=3, **FREE)["choices"][0]["logprobs"]
        assert len(probed["tokens"]) == len(probed["token_logprobs"]) == len(probed["text_offset"]) == 5, probed
        for logprob, top in zip(probed["token_logprobs"], probed["top_logprobs"]):
            assert logprob <= max(top.values()) + 1e-6 and logprob < 0, probed
        beams = server.complete(prompt="a", num_beams=4, n=3, max_tokens=6)
        scores = [choice["score"] for choice in beams["choices"]]
        assert len(scores) == 3 and scores == sorted(scores, reverse=True), beams
        banned = server.complete(prompt="a", temperature=0, max_tokens=3, logit_bias={"1": -100, "100": 100})
        assert banned["choices"][0]["text"] == "aaa", banned


def test_a_stream_says_what_the_whole_answer_says(folder):
    with serving(trained(folder)) as server:
        asked = dict(prompt=["a", "b"], temperature=0.9, seed=5, n=2, max_tokens=20, stop=["e"], logprobs=1, **FREE)
        whole = server.complete(**asked)
        texts, reasons, tokens = [""] * 4, [None] * 4, [0] * 4
        stream = list(events(server.open_stream(**asked, stream_options={"include_usage": True})))
        assert stream[-1] == "[DONE]", stream[-1]
        pieces = [json.loads(data) for data in stream[:-1]]
        for piece in pieces:
            for choice in piece["choices"]:
                texts[choice["index"]] += choice["text"]
                tokens[choice["index"]] += len(choice["logprobs"]["tokens"])
                reasons[choice["index"]] = choice["finish_reason"] or reasons[choice["index"]]
        assert texts == text_of(whole), (texts, whole)
        assert reasons == [choice["finish_reason"] for choice in whole["choices"]]
        assert tokens == [len(choice["logprobs"]["tokens"]) for choice in whole["choices"]]
        assert pieces[-1]["usage"] == whole["usage"] and len({piece["id"] for piece in pieces}) == 1
        beams = list(events(server.open_stream(prompt="a", num_beams=3, max_tokens=6)))
        assert len(beams) == 2 and json.loads(beams[0])["choices"][0]["finish_reason"], beams


def test_scores_are_the_log_probabilities_of_answers(folder):
    with serving(trained(folder)) as server:
        answer = server.complete(prompt="words: 12", temperature=0, max_tokens=6, logprobs=0, **FREE)["choices"][0]
        text = answer["text"]
        scored = server.post("/v1/score", prompt="words: 12", target=[text, "x"], add_eos=False, logprobs=2)
        first = scored["data"][0]
        if len(text.encode()) == 6 and "\ufffd" not in text:
            assert max(abs(a - b) for a, b in zip(first["token_logprobs"], answer["logprobs"]["token_logprobs"])) < 1e-5
        assert abs(sum(first["token_logprobs"]) - first["score"]) < 1e-4, first
        assert len(scored["data"]) == 2 and len(first["top_logprobs"][0]) == 2, scored
        with_end = server.post("/v1/score", prompt="words: 12", target="x")["data"][0]
        assert len(with_end["tokens"]) == 2 and with_end["tokens"][-1] == 1, with_end


def test_embeddings_as_numbers_and_as_bytes(folder):
    with serving(trained(folder)) as server:
        numbers = server.post("/v1/embeddings", input=["one", "two", "one"])["data"]
        assert numbers[0]["embedding"] == numbers[2]["embedding"] != numbers[1]["embedding"]
        assert len(numbers[0]["embedding"]) == 16
        coded = server.post("/v1/embeddings", input="one", encoding_format="base64")["data"][0]["embedding"]
        unpacked = struct.unpack("<16f", base64.b64decode(coded))
        assert max(abs(a - b) for a, b in zip(unpacked, numbers[0]["embedding"])) < 1e-6


def test_embeddings_of_each_token(folder):
    model = trained(folder)
    with serving(model) as server:
        by_ids = server.post("/v1/embeddings", input=[[7, 9, 1], [5, 1]], pooling="none", dimensions=16)
        assert by_ids["usage"] == {"prompt_tokens": 5, "total_tokens": 5}, by_ids["usage"]
        rows = [item["embedding"] for item in by_ids["data"]]
        assert [[len(row) for row in one] for one in rows] == [[16] * 3, [16] * 2], rows
        means = server.post("/v1/embeddings", input=[[7, 9, 1], [5, 1]], dimensions=None, pooling="mean")["data"]
        for one, mean in zip(rows, means, strict=True):
            assert all(abs(sum(column) / len(one) - m) < 1e-6 for column, m in zip(zip(*one), mean["embedding"], strict=True))
        coded = server.post("/v1/embeddings", input=[7, 9, 1], pooling="none", encoding_format="base64")["data"][0]["embedding"]
        unpacked = [struct.unpack("<16f", base64.b64decode(row)) for row in coded]
        assert all(abs(a - b) < 1e-6 for one, other in zip(unpacked, rows[0], strict=True) for a, b in zip(one, other)), coded
        # The encoder of generate --embed.
        line = quintet("generate", f"--model_dir={model}", "--ids", "--embed=tokens", "7 9 1").out
        assert all(abs(a - b) < 1e-6 for one, other in zip(json.loads(line)["embeddings"], rows[0], strict=True) for a, b in zip(one, other)), line
    # 20 tokens of 16 numbers fit into half of 1 MiB, 64 x 200 do not.
    with serving(model, "--answers_mib=1") as server:
        assert len(server.post("/v1/embeddings", input=[5] * 20, pooling="none")["data"][0]["embedding"]) == 20
        error = server.post("/v1/embeddings", expect=400, input=[[5] * 200] * 64, pooling="none")["error"]
        assert error["param"] == "input" and error["code"] == "answer_too_large" and "630 would do" in error["message"], error
        assert len(server.post("/v1/embeddings", input=[[5] * 200] * 64)["data"]) == 64


def test_a_gpu_answers_as_the_cpu_does(folder):
    need_emulator()
    model = trained(folder)
    for weights in [], ["--quantize=int8"]:
        answers = {}
        for device in "cpu", "emulated":
            with serving(model, f"--device={device}", "--max_batch=6", "--max_n=6", "--cache_mib=16", *weights) as server:
                asked = dict(prompt=PROMPTS[:2], max_tokens=4, logprobs=1, **FREE)
                greedy, beams, sampled = (server.complete(**asked, **more)["choices"] for more in (
                    dict(temperature=0), dict(num_beams=3), dict(temperature=1.2, seed=3, n=2)))
                scored = server.post("/v1/score", prompt="words: 12", target="one")["data"][0]
                embedded = server.post("/v1/embeddings", input="words: 12")["data"][0]["embedding"]
                server.wait_idle()
            choices = greedy + beams + sampled
            numbers = [x for choice in choices for x in choice["logprobs"]["token_logprobs"]] + scored["token_logprobs"]
            answers[device] = [choice["text"] for choice in choices], numbers + embedded
        (texts, numbers), (device_texts, device_numbers) = answers.values()
        assert texts == device_texts, answers
        assert all(abs(a - b) < 1e-4 for a, b in zip(numbers, device_numbers, strict=True)), answers
    refused = quintet("serve", f"--model={model}", "--device=emulated", "--quantize=int8_dynamic", expect=2).err
    assert "--quantize=int8" in refused and "--device=cpu" in refused, refused


# docs/reference/faults.md S5.
def test_every_wrong_field_is_named(folder):
    with serving(trained(folder), "--max_prompts=3", "--max_prompt_tokens=20", "--max_tokens=30", "--max_n=8") as server:
        deep = "[" * 100000

        def refused(path, field, body):
            """Within 10 ms; where the machine has other work, of the server's own time."""
            began, before = time.time(), server.cpu_seconds()
            for _ in range(20):
                status, answer, _ = server.request("POST", path, body)
                assert status == 400 and answer["error"]["param"] == field, f"{path} {str(body)[:200]}: {status} {answer}"
                if time.time() - began < 0.01:
                    return
            took = (server.cpu_seconds() - before) / 20
            assert took <= 0.01 * e2e.PATIENCE, f"{path} {str(body)[:200]}: {took:.3f} s"

        for field, values in {
                "prompt": [None, 5, {}, "", [], [""], [[]], ["a"] * 4, [-1], [100000], [1.5], [True], ["a", 5], "x" * 20,
                           [10] * 21],
                "n": [0, -1, 9, 10 ** 6, 1 << 70, "2", 1.5, []], "best_of": [0, 9, "x"],
                "num_beams": [0, 9, 10 ** 9, "x"], "max_tokens": [0, -5, 31, 10 ** 12, "7"], "min_tokens": [-1, 31],
                "temperature": [-1, 2.1, 1e308, "hot", True], "top_p": [0, -0.1, 1.01, "x"], "top_k": [-1, (1 << 20) + 1, 1 << 40, "x"],
                "logprobs": [-1, 21, "x", True, 1.5], "stop": ["", [""], ["a"] * 5, 7, [7], "x" * 257],
                "seed": ["x", 1.5, 1 << 70], "stream": ["yes", 1], "echo": [True, "x"], "suffix": ["x"],
                "frequency_penalty": [1], "presence_penalty": [-1], "repetition_penalty": [0, -1, 100.1, 1e9, "x"],
                "logit_bias": [5, {"x": 1}, {"-1": 1}, {"99999": 1}, {"1 ": 1}, {"5": 101}, {"5": -101}, {"5": "x"},
                               {str(i): 1 for i in range(1025)}],
                "user": [5], "priority": [1, -101, "x"], "length_penalty": [11, -11, "x"],
                "no_repeat_ngram_size": [-1, 1025, "x"],
                "stream_options": [5, {}, {"include_usage": True}], "sede": [1], "model": [5]}.items():
            for value in values:
                refused("/v1/completions", field, {"prompt": "a", "max_tokens": 2, field: value})
        for field, more in {"best_of": [dict(n=3, best_of=2), dict(n=2, best_of=3, stream=True)],
                            "temperature": [dict(num_beams=2, temperature=1)],
                            "n": [dict(num_beams=2, n=3), dict(num_beams=2, best_of=3)],
                            "min_tokens": [dict(max_tokens=3, min_tokens=4)],
                            "stream_options": [dict(stream=True, stream_options=options)
                                               for options in ([], {"include_usage": 1}, {"other": True})]}.items():
            for fields in more:
                refused("/v1/completions", field, {"prompt": "a", **fields})
        text = ["", [], [""], 5, {}, "x" * 20, ["a"] * 4, [-1], [100000], ["a", 5], None]
        for field, values in {"prompt": text, "target": [value for value in text if value != "x" * 20] + ["x" * 30, [10] * 30],
                              "logprobs": [-1, 21, "x"], "add_eos": [1, "x"], "model": [5], "echo": [True]}.items():
            for value in values:
                refused("/v1/score", field, {"prompt": "a", "target": "b", field: value})
        refused("/v1/score", "target", {"prompt": ["a", "b"], "target": ["a", "b", "c"]})
        refused("/v1/score", "target", {"prompt": "a", "target": [[]], "add_eos": False})
        for field, values in {"input": text, "encoding_format": ["int8", 5], "user": [5], "model": [5],
                              "dimensions": [5, 0, -1, "x", 1 << 70], "pooling": ["max", "", 5]}.items():
            for value in values:
                refused("/v1/embeddings", field, {"input": "a", field: value})
        for path in "/v1/score", "/v1/embeddings":
            body = {"prompt": "a", "target": "a"} if path == "/v1/score" else {"input": "a"}
            assert server.post(path, expect=404, model="other", **body)["error"]["code"] == "model_not_found"
        # What the limits allow is answered.
        server.complete(prompt=["x" * 19, [10] * 20, "a"], n=8, max_tokens=30, top_p=1, top_k=1 << 20, logprobs=20,
                        repetition_penalty=100, no_repeat_ngram_size=1024, length_penalty=-10, priority=-100, temperature=2,
                        stop=["x" * 256] * 4, logit_bias={str(i): -100 for i in range(2, 102)}, min_tokens=30, seed=-1 << 63)
        for body in ["", "{", "[]", "5", "\xff", deep, '{"prompt": "a", "user": ' + deep + "]" * len(deep) + "}", '{"prompt": ' + deep, '{"prompt": "a", "prompt": "b"}',
                     '{"prompt": "a", "temperature": NaN}', b'{"prompt": "\xff"}', '{"prompt": "a", "n": 1e999}']:
            status, answer, _ = server.request("POST", "/v1/completions", body)
            assert status == 400 and answer["error"]["type"] == "invalid_request_error", f"{body[:40]}: {answer}"
            assert answer["error"]["code"] == "invalid_json", f"{body[:40]}: {answer}"
        assert server.post("/v1/completions", expect=404, prompt="a", model="other")["error"]["code"] == "model_not_found"
        for method, path, expect in [("GET", "/v1/completions", 405), ("POST", "/health", 405), ("GET", "/nothing", 404),
                                     ("DELETE", "/v1/models", 405), ("GET", "/v1/models/x", 404)]:
            status, answer, _ = server.request(method, path)
            assert status == expect and answer["error"]["message"], (method, path, status)
        assert text_of(server.complete(prompt="a", max_tokens=2, temperature=0)) is not None
        status, answer, _ = server.request("POST", "/v1/responses", {"model": "tiny"})
        assert status == 404 and "/openapi.json" in answer["error"]["message"], answer
        # The key that is one too many is the last that is read.
        status, answer, _ = server.request("POST", "/v1/completions", "{" + ",".join(f'"{i:x}":0' for i in range(110000)) + "}")
        assert status == 400 and "more than 4096 keys" in answer["error"]["message"], answer
        status, answer, _ = server.request("POST", "/v1/completions", {"prompt": "a", "x" * 500_000: 1})
        assert status == 400 and "unknown field" in answer["error"]["message"], str(answer)[:200]


def test_keys_and_other_sites(folder):
    model = trained(folder)
    keys = folder / "keys"
    keys.write_text("# for tests\nsecret-0123456789abcdef alice\nsecret-fedcba9876543210 bob 3\n")
    with serving(model, f"--api_keys={keys}") as server:
        for headers, expect in [({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": "Bearer "}, 401),
                                ({"Authorization": "Basic secret-0123456789abcdef"}, 401),
                                ({"Authorization": "Bearer secret-0123456789abcdef"}, 200),
                                ({"Authorization": "bEARER  secret-0123456789abcdef"}, 200),
                                ({"Authorization": "Bearersecret-0123456789abcdef"}, 401),
                                ({"Authorization": "Bearer secret-fedcba9876543210"}, 200)]:
            server.post("/v1/completions", expect=expect, headers=headers, prompt="a", max_tokens=2)
            assert server.request("GET", "/metrics", headers=headers)[0] == expect
        server.get("/health")
        server.get("/")
    with serving(model) as server:
        body = dict(prompt="a", max_tokens=2)
        server.post("/v1/completions", expect=403, headers={"Origin": "https://evil.example"}, **body)
        server.post("/v1/completions", headers={"Origin": f"http://127.0.0.1:{server.port}"}, **body)
        # A name that another site's page has made ours (DNS rebinding).
        evil = "evil.example:8000"
        for headers in {"Host": evil, "Origin": f"http://{evil}"}, {"Host": evil}, {"Host": "localhost.evil.example"}:
            refused = server.post("/v1/completions", expect=403, headers=headers, **body)
            assert "--allowed_hosts=" in refused["error"]["message"], refused
            for path in "/v1/models", "/metrics", "/":
                assert server.request("GET", path, headers=headers)[0] == 403, (path, headers)
        for name in f"LOCALHOST.:{server.port}", "app.localhost", "[::1]:80", "192.168.7.7":
            server.post("/v1/completions", headers={"Host": name, "Origin": f"http://{name}"}, **body)
        for target, host, expect in (b"http://localhost/v1/models", b"evil.example", b"200"), \
                (b"HTTP://evil.example/v1/models", b"localhost", b"403"), (b"http://[::1]:80", b"localhost", b"200"):
            said = server.raw(b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
            assert said.startswith(b"HTTP/1.1 " + expect), (target, said)
        assert b" 200 " in server.raw(b"GET /v1/models HTTP/1.0\r\n\r\n")
        assert b" 403 " in server.raw(b"GET /v1/models HTTP/1.0\r\nOrigin: http://evil.example\r\n\r\n")
        # What a client invents is no label.
        for path in "/v1/x\",status=\"200\"}", "/v1/y", "/v1/models/z":
            assert server.request("GET", path)[0] == 404
        labels = [line for line in server.metrics() if line.startswith("quintet_requests_total")]
        assert set(labels) == {f'quintet_requests_total{{endpoint="{endpoint}",status="{status}"}}' for endpoint, status in [
            ("/v1/completions", 200), ("/v1/completions", 403), ("/v1/models", 403), ("/v1/models", 404), ("/metrics", 403),
            ("/", 200), ("/", 403), ("/v1/models", 200), ("other", 404)]}, labels
    with serving(model, "--allowed_hosts=Models.example,*.lab") as server:
        for host, expect in ("models.example:80", 200), ("a.lab", 200), ("localhost", 200), ("lab", 403), ("evil.example", 403):
            server.post("/v1/completions", expect=expect, headers={"Host": host, "Origin": f"https://{host}"}, **body)
    assert "--allowed_hosts" in quintet("serve", f"--model={model}", "--allowed_hosts=http://a", expect=2).err
    for text, part in ("abc\n", "keys:1"), ("\n# nobody\n", "no key"), (f"{'k' * 16} name 1 more\n", "keys:1"):
        keys.write_text(text)
        assert part in quintet("serve", f"--model={model}", f"--api_keys={keys}", expect=3).err


def test_it_listens_on_this_machine_only_and_says_why_it_cannot_start(folder):
    model = trained(folder)
    with serving(model) as server:
        listening = [line.split()[1] for line in open("/proc/net/tcp") if f":{server.port:04X} " in line]
        assert f"0100007F:{server.port:04X}" in listening and f"00000000:{server.port:04X}" not in listening, listening
        assert "cannot listen" in quintet("serve", f"--model={model}", f"--port={server.port}", expect=4).err
    for code, flags, part in [(3, ["--model=/nowhere"], "/nowhere"), (2, [], "--model"),
                              (2, [f"--model={model}", "--host=example"], "--host"),
                              (2, [f"--model={model}", "--max_n=100", "--max_batch=10"], "--max_batch")]:
        assert part in quintet("serve", *flags, expect=code).err


def test_a_model_folder_of_any_name(folder):
    strange = os.fsencode(trained(folder)) + b"-\xff"
    os.rename(folder / "tiny", strange)
    with serving(os.fsdecode(strange)) as server:
        name = server.get("/v1/models")["data"][0]["id"]
        assert name == "tiny-\ufffd", name
        assert server.complete(prompt="a", max_tokens=2)["model"] == name
        assert json.loads(next(events(server.open_stream(prompt="a", max_tokens=2, logprobs=1))))["model"] == name


# docs/reference/faults.md S8: nothing is read from the files once it serves.
def test_files_may_change_while_it_serves(folder):
    model = trained(folder)
    with serving(model) as server:
        asked = dict(prompt=PROMPTS, temperature=0, max_tokens=10)
        before = text_of(server.complete(**asked))
        for file in model.rglob("*"):
            if file.is_file():
                os.truncate(file, file.stat().st_size // 2)
        assert text_of(server.complete(**asked)) == before


def test_files_cut_short_before_it_serves_are_named(folder):
    model = trained(folder)
    files = [file for file in model.glob("checkpoint_4/*") if file.name != "state.h5"]  # for others to read
    assert len(files) >= 2, files
    for file in files:
        whole = file.read_bytes()
        for size in len(whole) // 2, len(whole) - 1, 0:
            os.truncate(file, size)
            done = quintet("serve", f"--model={model}", "--port=0", expect=None, timeout=60)
            assert done.code == 3 and file.name in done.err, (file, size, str(done))
            file.write_bytes(whole)


def test_logs_hold_no_text_unless_requested(folder):
    model = trained(folder)
    for flags in [], ["--log_prompts"]:
        with serving(model, *flags) as server:
            server.complete(prompt="sesame", max_tokens=2)
            server.post("/v1/completions", expect=400, prompt="sesame", n="sesame")
            list(events(server.open_stream(prompt="sesame", max_tokens=2)))
        assert ("sesame" in "".join(server.log)) == bool(flags), server.log


e2e.run(globals())
