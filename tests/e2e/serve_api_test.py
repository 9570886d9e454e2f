"""quintet serve beside completions: conversations, tokens, batches of requests, its description, its log."""

import json
import re
import time

import e2e
from e2e import quintet
from serving import FREE, events, serving, text_of, trained

JSONL = {"Content-Type": "application/jsonl"}


def test_a_conversation_is_answered_as_its_prompt(folder):
    with serving(trained(folder)) as server:
        def chat(messages, **more):
            return server.post("/v1/chat/completions", messages=messages, temperature=0, max_tokens=12, **more)

        user = {"role": "user", "content": "words: 1234"}
        want = server.complete(prompt="words: 1234", temperature=0, max_tokens=12, **FREE)
        answer = chat([user], **FREE)
        assert answer["object"] == "chat.completion" and answer["id"].startswith("chatcmpl-"), answer
        message = {"role": "assistant", "content": text_of(want)[0], "refusal": None}
        assert [choice["message"] for choice in answer["choices"]] == [message], (answer, want)
        assert answer["usage"] == want["usage"] and "warning" not in answer, answer
        parts = {"role": "user", "content": [{"type": "text", "text": "words: "}, {"type": "text", "text": "1234"}]}
        longer = chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"},
                       {"role": "assistant", "content": "b"}, parts], **FREE)
        assert longer["choices"][0]["message"] == message and "last user message" in longer["warning"], longer
        beams = server.post("/v1/chat/completions", messages=[user], n=3, num_beams=4, max_completion_tokens=6)
        assert [choice["score"] for choice in beams["choices"]] == sorted((c["score"] for c in beams["choices"]), reverse=True), beams
        probed = chat([user], logprobs=True, top_logprobs=2, **FREE)["choices"][0]["logprobs"]["content"]
        assert len(probed) == 12 and all(len(token["top_logprobs"]) == 2 for token in probed), probed
        assert all(bytes(token["bytes"]).decode() == token["token"] for token in probed if token["token"].isascii()), probed
        stream = server.open_stream("/v1/chat/completions", messages=[user], temperature=0, max_tokens=12,
                                    stream_options={"include_usage": True}, **FREE)
        pieces = [json.loads(event) for event in events(stream) if event != "[DONE]"]
        deltas = [piece["choices"][0]["delta"] for piece in pieces if piece["choices"]]
        assert deltas[0]["role"] == "assistant" and not any("role" in delta for delta in deltas[1:]), deltas
        assert "".join(delta["content"] for delta in deltas) == message["content"], deltas
        assert pieces[0]["object"] == "chat.completion.chunk" and pieces[-1]["usage"] == want["usage"], pieces
        for field, body in {"messages": [{}, {"messages": []}, {"messages": "a"}, {"messages": ["a"]}, {"messages": [{"role": "user"}]},
                                         {"messages": [{"role": "tool", "content": "a"}]}, {"messages": [{"role": "user", "content": ""}]},
                                         {"messages": [{"role": "assistant", "content": "a"}]},
                                         {"messages": [{"role": "user", "content": "a", "name": "Ada"}]},
                                         {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]}],
                            "tools": [{"messages": [user], "tools": [{"type": "function"}]}],
                            "response_format": [{"messages": [user], "response_format": {"type": "json_object"}}],
                            "top_logprobs": [{"messages": [user], "top_logprobs": 2}],
                            "max_tokens": [{"messages": [user], "max_tokens": 2, "max_completion_tokens": 2}],
                            "max_completion_tokens": [{"messages": [user], "max_completion_tokens": 0}],
                            "prompt": [{"messages": [user], "prompt": "a"}]}.items():
            for one in body:
                error = server.post("/v1/chat/completions", expect=400, **one)["error"]
                assert error["param"] == field and error["message"], (field, one, error)


def test_a_run_names_the_template_of_its_conversations(folder):
    model = trained(folder)
    template = ["--gin.serving.ChatTemplate.user='User: {content}\\n'", "--gin.serving.ChatTemplate.assistant='Bot: {content}\\n'",
                "--gin.serving.ChatTemplate.answer='Bot:'"]
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "{content}"}]
    with serving(model, *template) as server:
        prompt = "User: a\nBot: b\nUser: {content}\nBot:"
        answer = server.post("/v1/chat/completions", messages=messages, temperature=0, max_tokens=8, **FREE)
        assert answer["usage"]["prompt_tokens"] == len(prompt) + 1 and "warning" not in answer, answer
        want = server.complete(prompt=prompt, temperature=0, max_tokens=8, **FREE)
        assert answer["choices"][0]["message"]["content"] == text_of(want)[0]
    # The run's own configuration may bind it.
    config = model / "config.gin"
    text = config.read_text().replace("dynamic_registration\n", "dynamic_registration\nimport quintet.serving\n", 1)
    config.write_text(text + "\nquintet.serving.ChatTemplate.answer = 'Bot:'\n")
    with serving(model) as server:
        answer = server.post("/v1/chat/completions", messages=messages[:1], max_tokens=1)
        assert answer["usage"]["prompt_tokens"] == len("a\nBot:") + 1, answer
    refused = quintet("serve", f"--model_dir={model}", "--port=0", "--gin.serving.ChatTemplate.user='User: '", expect=2)
    assert "ChatTemplate.user" in refused.err and "{content}" in refused.err, refused.err


def test_requests_that_do_not_say_are_answered_as_the_server_was_told(folder):
    model, ask = trained(folder), {"prompt": "words: 12", "max_tokens": 6, **FREE}
    with serving(model, "--beams=3") as server:
        want, beams = server.complete(num_beams=3, **ask)["choices"], server.complete(**ask)["choices"]
        assert beams == want and "score" in beams[0], (beams, want)
        assert len(server.complete(n=4, **ask)["choices"]) == 4
        greedy = text_of(server.complete(num_beams=1, temperature=0, **ask))
        for sampled in ({"temperature": 1, "top_k": 1}, {"top_k": 1}, {"top_p": 1e-6}):  # who says how to sample wants no beams
            assert text_of(server.complete(**sampled, **ask)) == greedy, sampled
    with serving(model, "--temperature=0.5", "--top-k=1") as server:
        assert text_of(server.complete(**ask)) == greedy
        assert server.complete(num_beams=2, **ask)["choices"]
    for flags, named in ((["--beams=20"], "--max_n"), (["--beams=2", "--top_k=3"], "--beams"), (["--temperature=3"], "0 to 2")):
        assert named in quintet("serve", f"--model_dir={model}", "--port=0", *flags, expect=2).err, flags


def test_tokens_of_texts_and_texts_of_tokens(folder):
    with serving(trained(folder)) as server:
        whole = server.post("/tokenize", prompt="words: 1")
        assert whole["count"] == len(whole["tokens"]) == len("words: 1") + 1 and whole["max_model_len"] == 2048, whole
        plain = server.post("/tokenize", prompt="words: 1", add_special_tokens=False)
        assert plain["tokens"] == whole["tokens"][:-1], plain
        assert server.post("/tokenize", prompt="", add_special_tokens=False)["tokens"] == []
        assert server.post("/detokenize", tokens=plain["tokens"])["prompt"] == "words: 1"
        for path, body, field in [("/tokenize", {}, "prompt"), ("/tokenize", {"prompt": ["a"]}, "prompt"), ("/tokenize", {"prompt": "a", "x": 1}, "x"),
                                  ("/detokenize", {"tokens": [10 ** 6]}, "tokens"), ("/detokenize", {"tokens": "a"}, "tokens")]:
            assert server.post(path, expect=400, **body)["error"]["param"] == field, (path, body)


def test_a_batch_is_answered_line_by_line(folder):
    lines = [{"custom_id": f"q{i}", "method": "POST", "url": "/v1/completions",
              "body": {"prompt": f"words: {i}", "temperature": 0, "max_tokens": 6, **FREE}} for i in range(40)]
    lines += [{"custom_id": "e", "url": "/v1/embeddings", "body": {"input": "a"}},
              {"custom_id": "c", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}},
              {"custom_id": "wrong", "url": "/v1/completions", "body": {"prompt": "a", "sede": 1}},
              {"custom_id": "nowhere", "url": "/v1/nothing", "body": {}}]
    # Fewer places than lines: those that find none wait for the others.
    with serving(trained(folder), "--max_batch=16", "--max_queue=4") as server:
        body = "\n".join(json.dumps(line) for line in lines) + "\n\n"
        status, text, headers = server.request("POST", "/v1/batch", body, JSONL)
        assert status == 200 and headers["Content-Type"] == "application/jsonl", (status, text)
        answers = {answer["custom_id"]: answer["response"] for answer in map(json.loads, text.splitlines())}
        assert len(answers) == len(text.splitlines()) == len(lines), text[:2000]
        for line in lines[:40:13]:
            assert text_of(answers[line["custom_id"]]["body"]) == text_of(server.complete(**line["body"])), line
        statuses = {name: answer["status_code"] for name, answer in answers.items()}
        assert statuses.pop("wrong") == 400 and statuses.pop("nowhere") == 404 and set(statuses.values()) == {200}, statuses
        assert "sede" in answers["wrong"]["body"]["error"]["message"]
        for wrong, says in [("", "no line"), ("{", "line 1"), ("\n" + json.dumps({"url": "/v1/score", "body": {}}), "line 2: custom_id"),
                            (json.dumps(dict(lines[0], url="/v1/batch")), "url"), (json.dumps(dict(lines[0], method="GET")), "method"),
                            (json.dumps(dict(lines[0], body={"stream": True})), "stream"), (body + json.dumps(lines[3]), "another line has it")]:
            status, answer, _ = server.request("POST", "/v1/batch", wrong, JSONL)
            assert status == 400 and says in answer["error"]["message"], (wrong[:80], answer)


def test_adapters_are_chosen_by_the_name_of_the_model(folder):
    fixtures = e2e.ROOT / "tests" / "fixtures"
    base, adapter = fixtures / "huggingface" / "byt5", fixtures / "lora" / "byt5"
    (folder / "other").symlink_to(adapter)
    asked = {"prompt": "capital of land 1?", "target": "town 1"}

    def generated(*flags):
        done = quintet("generate", f"--model_dir={base}", "--target=town 1", "--format=json", asked["prompt"], *flags)
        return json.loads(done.out)["score"]

    want = {"byt5": generated(), "quiz": generated(f"--adapter={adapter}")}
    want["other"] = want["quiz"]
    assert abs(want["quiz"] - want["byt5"]) > 0.1, want
    with serving(base, f"--adapter=quiz={adapter}", f"--adapter={folder / 'other'}") as server:
        listed = server.get("/v1/models")["data"]
        assert [(one["id"], one.get("parent")) for one in listed] == [("byt5", None), ("quiz", "byt5"), ("other", "byt5")], listed
        assert server.get("/v1/models/quiz")["id"] == "quiz"
        for name, score in want.items():
            found = server.post("/v1/score", model=name, **asked)
            assert found["model"] == name and abs(found["data"][0]["score"] - score) < 1e-3, (name, score, found)
        assert abs(server.post("/v1/score", **asked)["data"][0]["score"] - want["byt5"]) < 1e-3
        answers = {name: server.complete(model=name, prompt="a", max_tokens=4, temperature=0) for name in want}
        assert answers["quiz"]["choices"] == answers["other"]["choices"] and answers["quiz"]["model"] == "quiz", answers
        lines = [{"custom_id": name, "method": "POST", "url": "/v1/score", "body": {"model": name, **asked}} for name in want]
        _, text, _ = server.request("POST", "/v1/batch", "".join(json.dumps(line) + "\n" for line in lines), JSONL)
        for line in map(json.loads, text.splitlines()):
            assert abs(line["response"]["body"]["data"][0]["score"] - want[line["custom_id"]]) < 1e-3, line
        unknown = server.post("/v1/completions", 404, model="nobody", prompt="a")
        assert "model 'nobody' is not here; there are 'byt5', 'quiz', 'other'" in unknown["error"]["message"], unknown
        assert server.metrics()["quintet_running_requests"] == 0
    for flags, code, words in [((f"--adapter=byt5={adapter}",), 2, "the name 'byt5' is another's"),
                               ((f"--adapter=x={base}",), 3, "this is no adapter"), ((f"--adapter=x={folder}/none",), 3, "none")]:
        refused = quintet("serve", f"--model_dir={base}", "--port=0", *flags, expect=code)
        assert words in refused.err, refused


def test_a_client_that_leaves_ends_its_batch(folder):
    line = {"url": "/v1/completions", "body": {"prompt": "a", "max_tokens": 5000, **FREE}}
    with serving(trained(folder), "--max_batch=4", "--max_n=4", "--max_tokens=5000") as server:
        with server.connect() as connection:
            body = "\n".join(json.dumps({"custom_id": str(i), **line}) for i in range(50))
            connection.sendall(f"POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            e2e.wait_for(lambda: server.metrics()["quintet_running_requests"] == 4)
        server.wait_idle()
        assert server.metrics()["quintet_generated_tokens_total"] == 0, "a line was computed to its end"


def test_the_description_says_what_the_server_takes(folder):
    with serving(trained(folder)) as server:
        assert re.fullmatch(r"\d+\.\d+\.\d+.*", server.get("/version")["version"])
        description = server.get("/openapi.json")
        schemas = description["components"]["schemas"]
        for path, methods in description["paths"].items():
            method = next(iter(methods)).upper()
            status, answer, _ = server.request(method, path.replace("{model}", "tiny"), "{}" if method == "POST" else None)
            assert status in (200, 400), (path, status, answer)
            if method == "GET":
                continue
            (content,) = methods["post"]["requestBody"]["content"].values()
            schema = schemas[content["schema"]["$ref"].rsplit("/", 1)[1]]
            # What a request may have is told with the first field that it may not.
            minimal = {"/v1/completions": {"prompt": "a"}, "/v1/score": {"prompt": "a", "target": "b"}, "/v1/embeddings": {"input": "a"},
                       "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 1},
                       "/tokenize": {"prompt": "a"}, "/detokenize": {"tokens": [5]}}.get(path)
            if minimal is None:
                minimal = {"custom_id": "a", "url": "/v1/score", "body": {}}
            unknown = server.post(path, expect=400, **minimal, no_such_field=1)["error"]["message"]
            takes = set(re.search(r"takes (.*)", unknown).group(1).split(", "))
            assert takes == set(schema["properties"]), (path, takes ^ set(schema["properties"]))
            assert set(schema.get("required", [])) <= takes, path


def test_the_log_has_a_line_for_each_request(folder):
    keys = folder / "keys"
    keys.write_text("0123456789abcdef ada\n")
    with serving(trained(folder), f"--api_keys={keys}", "--max_body_bytes=2000") as server:
        key = {"Authorization": "Bearer 0123456789abcdef"}
        began = time.strftime("%Y-%m-%dT%H:%M", time.gmtime())
        server.post("/v1/completions", headers=key, prompt="a", max_tokens=2)
        server.post("/v1/completions", headers=key, expect=400, prompt="a", n="sesame")
        server.post("/v1/completions", expect=401, prompt="a")
        server.raw(b"GET /no\xfewhere HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef\r\nConnection: close\r\n\r\n")
        server.request("GET", "/v1/models", headers=key)
        for path in "/health", "/ready", "/metrics":
            server.request("GET", path, headers=key)
        server.request("POST", "/v1/completions", "x" * 3000, key)
    log = [line for line in "".join(server.log).splitlines() if re.match(r"\d{4}-\d\d-\d\dT", line)]
    assert began <= log[0][:16], log
    said = [re.sub(r"\d+ ms", "N ms", line[21:]) for line in log]
    # A line is written when its answer has been sent: by then the next request may have had its own.
    assert sorted(said) == sorted(["ada POST /v1/completions 200 N ms, 1 prompts", "ada POST /v1/completions 400 N ms",
                                   "127.0.0.1 POST /v1/completions 401 N ms", "ada GET /no?where 404 N ms", "ada GET /v1/models 200 N ms",
                                   "127.0.0.1 POST /v1/completions 413 N ms"]), said


e2e.run(globals())
