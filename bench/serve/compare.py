#!/usr/bin/env python3
"""Our server, transformers behind FastAPI and CTranslate2 behind FastAPI under the same Poisson load on one machine: T5
1.1 small with random weights, prompts of 32 to 96 tokens, answers of 1 to 64. At each rate the servers are asked the
same requests, one server after the other, until a server's 99th percentile of whole answers passes --p99.

    scripts/peers serve && bench/serve/compare.py                      writes bench/results/<date>-serve-<cpu>.json, .md
    bench/serve/compare.py --rates=1,4 --seconds=10 --out=/tmp         a short try

Throughput at equal p99 is the rate at which that percentile is --p99, between the rates that were tried on a straight
line; the time to the first token is compared at the highest rate that all servers carry. The peers' Python is
.venv-serve-peers (QUINTET_SERVE_PEERS); bench/serve/peer_server.py says what they do."""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from compare import ROOT, commit, cpu_name  # noqa: E402

SMALL = dict(vocab_size=32128, emb_dim=512, num_heads=6, head_dim=64, mlp_dim=1024, num_encoder_layers=8, num_decoder_layers=8)


def python(options):
    return pathlib.Path(options.peers) / "bin" / "python"


def checked(command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"compare: {command[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def make_ours(options, folder):
    checked([options.quintet, "train", "--gin_file=quintet/quickstart.gin", f"--model_dir={folder}", "--gin.TRAIN_STEPS=2",
             "--gin.WARMUP_STEPS=1", "--gin.BATCH_SIZE=1", "--gin.train_script.train.infer_eval_dataset_cfg=None",
             *(f"--gin.network.T5Config.{name}={value}" for name, value in SMALL.items())])


def make_peers(options, folder):
    """Hugging Face's and CTranslate2's forms of such a model: bench/peers/ct2_generate.py knows how."""
    checked([python(options), ROOT / "bench/peers/ct2_generate.py", "--batch=1", "--inputs=4", "--targets=2", "--steps=1"],
            env=dict(os.environ, QUINTET_CT2_MODEL=str(folder)))


def commands(options, folder):
    peer = [python(options), HERE / "peer_server.py"]
    return {"quintet": [options.quintet, "serve", f"--model={folder / 'small'}"],
            "transformers": [*peer, "transformers", folder / "peers" / "hf"],
            "ctranslate2": [*peer, "ctranslate2", folder / "peers" / "ct2"]}


@contextlib.contextmanager
def running(name, command, port, log):
    with open(log, "w") as said:
        process = subprocess.Popen([str(part) for part in command] + [f"--port={port}"], stdout=said, stderr=said)
    try:
        end = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5).read()
                break
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"compare: {name} does not answer (exit {process.poll()}):\n{log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


def load(name, process, port, rate, seconds, patience):
    done = subprocess.run([sys.executable, HERE / "load.py", f"--url=http://127.0.0.1:{port}", f"--pid={process.pid}",
                           f"--name={name}", f"--rate={rate}", f"--seconds={seconds}", f"--patience={patience}",
                           "--prompt_tokens=64", "--max_tokens=64", "--ignore_eos"], capture_output=True, text=True)
    if not done.stdout:
        sys.exit(f"compare: the load on {name} failed:\n{done.stderr[-2000:]}")
    result = json.loads(done.stdout)
    first, whole = result["first_token_seconds"], result["request_seconds"]
    print(f"{name:13} {rate:>5}/s asked, {result['requests_per_second']:6.2f}/s done, {result['tokens_per_second']:7.1f} "
          f"tokens/s; first token p50 {first['p50']} p99 {first['p99']} s, whole p50 {whole['p50']} p99 {whole['p99']} s, "
          f"{result['errors']} errors", file=sys.stderr, flush=True)
    return result


def carried(result, limit):
    return result["errors"] == 0 and result["requests"] > 0 and result["request_seconds"]["p99"] <= limit


def rate_at(results, limit):
    """The rate at which p99 is the limit; whether that is a lower bound only, because every rate was carried."""
    last = None
    for result in results:
        p99 = result["request_seconds"]["p99"] if not result["errors"] else None
        if carried(result, limit):
            last = result
            continue
        if last is None:
            return None, False
        before = last["request_seconds"]["p99"]
        if p99 is None:
            return last["rate"], False
        return last["rate"] + (result["rate"] - last["rate"]) * (limit - before) / (p99 - before), False
    return last["rate"], True


def report(options, all_results):
    lines = ["| server | requests/s asked | done | tokens/s | first token p50 | p99 | whole answer p50 | p99 | errors | MiB |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for name, results in all_results.items():
        for r in results:
            first, whole = r["first_token_seconds"], r["request_seconds"]
            lines.append(f"| {name} | {r['rate']:g} | {r['requests_per_second']} | {r['tokens_per_second']} | {first['p50']} | "
                         f"{first['p99']} | {whole['p50']} | {whole['p99']} | {r['errors']} | {r['resident_mib']['after']} |")
    rates = {name: rate_at(results, options.p99) for name, results in all_results.items()}
    common = [rate for rate in options.rates
              if all(any(r["rate"] == rate and carried(r, options.p99) for r in results) for results in all_results.values())]
    lines += ["", f"| server | requests/s at p99 = {options.p99:g} s | ours is | first token p50 at {max(common, default=0):g}/s | "
              "ours is |", "|---|---|---|---|---|"]

    def first_token(name):
        return next(r["first_token_seconds"]["p50"] for r in all_results[name] if r["rate"] == max(common))

    def against(ours, theirs, bound=""):
        return f"{bound}{ours / theirs:.2f}x" if ours and theirs else ""
    for name, (rate, open_ended) in rates.items():
        bound = "at least " if open_ended else ""
        said = f"{bound}{rate:.2f}" if rate else f"below {options.rates[0]:g}"
        ours, ours_open = rates.get("quintet", (None, False))
        more, sooner = "", ""
        if name != "quintet":
            more = against(ours, rate, "at least " if ours_open and not open_ended else "")
            sooner = against(first_token(name), first_token("quintet")) if common and "quintet" in rates else ""
        lines.append(f"| {name} | {said} | {more} | {first_token(name) if common else ''} | {sooner} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="0.5,1,2,3,4,6,8,12,16", help="requests a second, rising")
    parser.add_argument("--seconds", type=float, default=60, help="of each load")
    parser.add_argument("--p99", type=float, default=4, help="seconds that 99 of 100 whole answers may take")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="quintet,transformers,ctranslate2")
    parser.add_argument("--quintet", default=os.environ.get("QUINTET", str(ROOT / "build" / "quintet")))
    parser.add_argument("--peers", default=os.environ.get("QUINTET_SERVE_PEERS", str(ROOT / ".venv-serve-peers")))
    parser.add_argument("--out", default=str(ROOT / "bench" / "results"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers end with us
    options.rates = [float(rate) for rate in options.rates.split(",")]
    names = options.only.split(",")
    if set(names) - {"quintet"} and not python(options).exists():
        sys.exit(f"compare: {python(options)}: not there; run scripts/peers serve")
    all_results = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="quintet-serve-bench-") as folder, contextlib.ExitStack() as servers:
        folder = pathlib.Path(folder)
        if "quintet" in names:
            make_ours(options, folder / "small")
        if set(names) - {"quintet"}:
            make_peers(options, folder / "peers")
        started = {}
        for port, name in enumerate(names, 8801):
            command = [*commands(options, folder)[name], f"--threads={options.threads}"]
            process = servers.enter_context(running(name, command, port, folder / f"{name}.log"))
            started[name] = (process, port)
            load(name, process, port, 2, 3, 60)  # warm
        for rate in options.rates:
            for name, (process, port) in started.items():
                if all_results[name] and not carried(all_results[name][-1], options.p99):
                    continue  # a higher rate would only take longer
                result = load(name, process, port, rate, options.seconds, max(30, 4 * options.p99))
                print(json.dumps(result), flush=True)
                all_results[name].append(result)
    table = report(options, all_results)
    print(table, file=sys.stderr)
    cpu = cpu_name()
    head = (f"# Serving and its peers, {datetime.date.today()}\n\n{cpu}, {options.threads} threads, commit {commit()}; T5 1.1 "
            f"small, float32, random weights; {options.seconds:g} s a load; `bench/serve/compare.py`. Seconds; MiB: the "
            "server's resident memory.\n\n")
    stem = pathlib.Path(options.out) / f"{datetime.date.today()}-serve-{re.sub('[^a-z0-9]+', '-', cpu.lower()).strip('-')}"
    stem.with_suffix(".json").write_text(json.dumps(all_results, indent=1) + "\n")
    stem.with_suffix(".md").write_text(head + table)
    print(f"{stem}.md", file=sys.stderr)


if __name__ == "__main__":
    main()
