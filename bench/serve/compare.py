#!/usr/bin/env python3
"""Our server, transformers behind FastAPI and CTranslate2 behind FastAPI under the same Poisson load, one after the other:
T5 1.1 small with random weights, prompts of 32 to 96 tokens, answers of 1 to 64. Prints a table on stderr and a JSON
object a line on stdout: throughput, time to the first token and to the last one at each rate.

    scripts/peers serve && bench/serve/compare.py --rates=1,2,4,8 --seconds=60

The peers' Python is .venv-serve-peers (QUINTET_SERVE_PEERS)."""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "bench" / "serve"
PYTHON = pathlib.Path(os.environ.get("QUINTET_SERVE_PEERS", ROOT / ".venv-serve-peers")) / "bin" / "python"
QUINTET = os.environ.get("QUINTET", str(ROOT / "build" / "quintet"))
SMALL = dict(vocab_size=32128, emb_dim=512, num_heads=6, head_dim=64, mlp_dim=1024, num_encoder_layers=8, num_decoder_layers=8)


def make_ours(folder):
    subprocess.run([QUINTET, "train", "--gin_file=quintet/quickstart.gin", f"--model_dir={folder}", "--gin.TRAIN_STEPS=2",
                    "--gin.WARMUP_STEPS=1", "--gin.BATCH_SIZE=1", "--gin.train_script.train.infer_eval_dataset_cfg=None",
                    *(f"--gin.network.T5Config.{name}={value}" for name, value in SMALL.items())],
                   check=True, capture_output=True)


def make_peers(folder):
    """Hugging Face's and CTranslate2's forms of such a model: bench/peers/ct2_generate.py knows how."""
    subprocess.run([PYTHON, ROOT / "bench/peers/ct2_generate.py", "--batch=1", "--inputs=4", "--targets=2", "--steps=1"],
                   check=True, capture_output=True, env=dict(os.environ, QUINTET_CT2_MODEL=str(folder)))


@contextlib.contextmanager
def running(command, port):
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ready").read()
                break
            if process.poll() is not None:
                sys.exit(f"compare: {command[0]} ended with {process.returncode}")
            time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        process.wait()


def load(name, process, port, *more):
    done = subprocess.run([HERE / "load.py", f"--url=http://127.0.0.1:{port}", f"--pid={process.pid}", f"--name={name}",
                           "--prompt_tokens=64", "--max_tokens=64", "--ignore_eos", *more], capture_output=True, text=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="1,2,4,8", help="requests a second")
    parser.add_argument("--seconds", default="60")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--only", default="ours,transformers,ctranslate2")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quintet-serve-bench-") as folder:
        folder = pathlib.Path(folder)
        names = options.only.split(",")
        commands = {}
        if "ours" in names:
            make_ours(folder / "small")
            commands["ours"] = [QUINTET, "serve", f"--model={folder / 'small'}", f"--threads={options.threads}"]
        if set(names) - {"ours"}:
            make_peers(folder / "peers")
            peer = [PYTHON, HERE / "peer_server.py"]
            commands["transformers"] = [*peer, "transformers", folder / "peers" / "hf", f"--threads={options.threads}"]
            commands["ctranslate2"] = [*peer, "ctranslate2", folder / "peers" / "ct2", f"--threads={options.threads}"]
        for port, name in enumerate(names, 8801):
            with running([*commands[name], f"--port={port}"], port) as process:
                load("warm up", process, port, "--rate=2", "--seconds=3")
                for rate in options.rates.split(","):
                    result = load(name, process, port, f"--rate={rate}", f"--seconds={options.seconds}")
                    print(json.dumps(result), flush=True)
                    first, whole = result["first_token_seconds"], result["request_seconds"]
                    print(f"{name:13} {rate:>5}/s asked, {result['requests_per_second']:6.2f}/s done, "
                          f"{result['tokens_per_second']:7.1f} tokens/s; first token p50 {first['p50']} p99 {first['p99']} s, "
                          f"whole p50 {whole['p50']} p99 {whole['p99']} s, {result['errors']} errors", file=sys.stderr)


if __name__ == "__main__":
    main()
