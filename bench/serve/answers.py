#!/usr/bin/env python3
"""What is asked of answers beside their text and what it costs: 64 rows of 1,024 tokens from a small model with random
weights and a SentencePiece vocabulary, served plain, with log probabilities, with stop strings that are never met, as
a stream, and as a stream with log probabilities. One server answers all kinds in turn, round after round.

    bench/serve/answers.py                               writes bench/results/<date>-answers-<cpu>.json, .md
    bench/serve/answers.py --rounds=1 --tokens=128 --out=/tmp     a short try

A kind's ratio is the median over the rounds of its seconds by those of the same round's plain answers. Time is the server's processor time,
which other work on the machine does not change much; what passed on the clock is stated, too. Exit status 1 if a ratio exceeds --most. Standard library
only."""

import argparse
import contextlib
import datetime
import http.client
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from compare import ROOT, commit, cpu_name  # noqa: E402

PIECES, EXTRA = 2000, 100
STOPS = [f"{i}" * 255 + "!" for i in range(4)]
KINDS = {"plain": {}, "logprobs=0": {"logprobs": 0}, "logprobs=5": {"logprobs": 5}, "four stops of 256 bytes": {"stop": STOPS},
         "stream": {"stream": True}, "stream, logprobs=0": {"stream": True, "logprobs": 0}}


def checked(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"answers: {' '.join(map(str, command[:2]))} ended with {done.returncode}:\n{done.stderr[-2000:]}")


def make_model(options, folder):
    """Words of our own sources, two steps of training: random weights that take the vocabulary's ids."""
    texts = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "data").rglob("*.cpp"))]
    checked([options.quintet, "tokenizer", "train", *(f"--input={text}" for text in texts), f"--vocab_size={PIECES}",
             f"--model_prefix={folder / 'sp'}", "--byte_fallback", "--quiet"])
    checked([options.quintet, "train", "--gin_file=quintet/quickstart.gin", f"--model_dir={folder / 'model'}",
             "--gin.TRAIN_STEPS=2", "--gin.WARMUP_STEPS=1", "--gin.BATCH_SIZE=1",
             "--gin.VOCABULARY=@seqio.SentencePieceVocabulary()", "--gin.seqio.Feature.vocabulary=%VOCABULARY",
             f"--gin.seqio.SentencePieceVocabulary.sentencepiece_model_file='{folder / 'sp.model'}'",
             "--gin.train_script.train.verify_matching_vocabs_fn=None",  # the task counts bytes; nothing is learned here
             f"--gin.seqio.SentencePieceVocabulary.extra_ids={EXTRA}", f"--gin.network.T5Config.vocab_size={PIECES + EXTRA}",
             "--gin.train_script.train.infer_eval_dataset_cfg=None", "--gin.train_script.train.train_eval_dataset_cfg=None"])


@contextlib.contextmanager
def served(options, folder):
    log = open(folder / "log", "w+")
    process = subprocess.Popen([options.quintet, "serve", f"--model={folder / 'model'}", "--port=0", f"--max_tokens={options.tokens}",
                                f"--max_batch={options.rows}", f"--max_prompts={options.rows}"], stderr=log, stdin=subprocess.DEVNULL,
                               env=dict(os.environ, OMP_NUM_THREADS=str(options.threads)))
    try:
        while not (found := re.search(r"http://[\w.]+:(\d+)/", (folder / "log").read_text())):
            if process.poll() is not None:
                sys.exit(f"answers: the server ended: {(folder / 'log').read_text()}")
            time.sleep(0.05)
        yield int(found.group(1)), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        log.close()


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(server, options, more):
    """Seconds of the server's processor and of the clock until the answer's last byte, and how many bytes that was."""
    port, pid = server
    body = {"prompt": [f"words: {i}" for i in range(options.rows)], "max_tokens": options.tokens, "seed": 1, "temperature": 1,
            "logit_bias": {"1": -100}, **more}
    began, worked = time.perf_counter(), processor_seconds(pid)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(body))
    answer = connection.getresponse()
    size, first, last = 0, b"", b""
    while part := answer.read1(1 << 20):
        first = first or part[:300]
        size, last = size + len(part), (last + part)[-300:]
    seconds = processor_seconds(pid) - worked, time.perf_counter() - began
    if answer.status != 200:
        sys.exit(f"answers: {answer.status}: {first}")
    if more.get("stream"):
        assert last.endswith(b"data: [DONE]\n\n"), last
    else:
        tokens = options.rows * options.tokens
        assert json.loads(last[last.index(b'"usage":') + 8:-2])["completion_tokens"] == tokens, last
    return *seconds, size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quintet", default=ROOT / "build" / "quintet", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--most", type=float, default=1.3, help="a ratio that is still good")
    parser.add_argument("--out", default=ROOT / "bench" / "results", type=pathlib.Path)
    options = parser.parse_args()
    seconds, clock, sizes = {kind: [] for kind in KINDS}, {kind: [] for kind in KINDS}, {}
    with tempfile.TemporaryDirectory() as folder:
        make_model(options, pathlib.Path(folder))
        with served(options, pathlib.Path(folder)) as server:
            ask(server, options, {})  # the first one also takes memory
            for _ in range(options.rounds):
                for kind, more in KINDS.items():
                    took, passed, sizes[kind] = ask(server, options, more)
                    seconds[kind].append(took)
                    clock[kind].append(passed)
    rows = {}
    for kind, all_seconds in seconds.items():
        ratios = [took / plain for took, plain in zip(all_seconds, seconds["plain"])]
        rows[kind] = {"seconds": round(statistics.median(all_seconds), 2), "clock": round(statistics.median(clock[kind]), 2),
                      "ratio": round(statistics.median(ratios), 3),
                      "least": round(min(ratios), 3), "largest": round(max(ratios), 3), "bytes": sizes[kind]}
    cpu, date = cpu_name(), datetime.date.today().isoformat()
    lines = [f"# What answers cost beside their text, {date}", "",
             f"{cpu}, {options.threads} thread{'s' * (options.threads > 1)} for the network, load {os.getloadavg()[1]:.1f} while it ran, commit {commit()}; {options.rows} rows of "
             f"{options.tokens} tokens, {options.rounds} rounds; quickstart's model with a SentencePiece vocabulary of "
             f"{PIECES} pieces, random weights; `bench/serve/answers.py`.", "",
             "| asked | processor seconds, median | by plain, median | least | largest | seconds of the clock | bytes of the answer |",
             "|---|---|---|---|---|---|---|"]
    lines += [f"| {kind} | {r['seconds']} | {r['ratio']} | {r['least']} | {r['largest']} | {r['clock']} | {r['bytes']:,} |" for kind, r in rows.items()]
    print("\n".join(lines))
    name = f"{date}-answers-{re.sub('[^a-z0-9]+', '-', cpu.lower()).strip('-')}"
    (options.out / f"{name}.md").write_text("\n".join(lines) + "\n")
    (options.out / f"{name}.json").write_text(json.dumps({"cpu": cpu, "date": date, "commit": commit(), "kinds": rows}, indent=1) + "\n")
    slow = [kind for kind, row in rows.items() if row["ratio"] > options.most]
    sys.exit(f"answers: more than {options.most} times plain: {', '.join(slow)}" if slow else 0)


main()
