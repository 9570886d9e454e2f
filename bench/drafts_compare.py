#!/usr/bin/env python3
"""Speculative decoding against generation without guesses, and against transformers' with the same arguments, in one run on one machine.

bench/drafts_compare.py [--quintet build/quintet] [--model DIR] [--assistant DIR] [--input FILE] [--max_tokens 128] [--guesses 2,4,8] [--pairs 5] [--threads 2] [--peer PYTHON]

--model, --assistant: any that `quintet generate` takes. Without --model a Hugging Face directory of T5 1.1 base's sizes with random weights is made in
  --folder, whose greedy answers soon repeat themselves, so that nearly all guesses are right: what a step of several rows costs. Without --input its inputs
  are token ids.
quintet: `quintet generate --batch_size=1` over all inputs less the same process over none (its load), without guesses and with, in turns; the answers must
  be equal.
transformers: generate of each input in float32 in one process, without guesses and with prompt_lookup_num_tokens, if --peer names a Python that has torch
  and transformers and the model is a Hugging Face directory; loading apart.
ratio: seconds without guesses over seconds with them, the median of the pairs' own. One JSON object a line on stdout.
"""
import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

RANDOM_BASE = '''
import sys, torch
from transformers import T5Config, T5ForConditionalGeneration
torch.manual_seed(0)
T5ForConditionalGeneration(T5Config(vocab_size=32128, d_model=768, d_kv=64, d_ff=2048, num_layers=12, num_heads=12,
    feed_forward_proj='gated-gelu', tie_word_embeddings=False, decoder_start_token_id=0)).save_pretrained(sys.argv[1])
'''
PEER = '''
import json, sys, time, torch
from transformers import T5ForConditionalGeneration
folder, inputs, tokens, threads, guesses = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5])
torch.set_num_threads(threads)
model = T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
more = dict(prompt_lookup_num_tokens=guesses) if guesses else {}
def answer(ids):
    with torch.no_grad():
        return model.generate(torch.tensor([ids]), max_new_tokens=tokens, do_sample=False, num_beams=1, **more)[0, 1:].tolist()
answer(inputs[0])
begin = time.perf_counter()
answers = [answer(ids) for ids in inputs]
print(json.dumps([time.perf_counter() - begin, answers]))
'''


def generate(arguments, inputs, *flags):
    """(seconds beside the load, the answers, what was said of guesses)"""
    environment = dict(OMP_NUM_THREADS=str(arguments.threads), PATH="/usr/bin:/bin")
    command = [arguments.quintet, "generate", f"--model_dir={arguments.model}", "--batch_size=1", f"--max_tokens={arguments.max_tokens}",
               "--format=json", "--logprobs=0", *arguments.more, *flags]

    def seconds(lines):
        begin = time.perf_counter()
        done = subprocess.run(command, input="".join(f"{line}\n" for line in lines), env=environment, capture_output=True, text=True, check=True)
        return time.perf_counter() - begin, done
    load, _ = seconds([])
    took, done = seconds(inputs)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return took - load, answers, done.stderr.splitlines()[-1]


def compare(arguments, inputs, name, *flags):
    """One line: the pairs' ratios, and how many guesses were right."""
    ratios, plain, drafted, said = [], [], [], ""
    for _ in range(arguments.pairs):
        without, want, _ = generate(arguments, inputs)
        with_guesses, got, said = generate(arguments, inputs, *flags)
        assert got == want, f"{name}: other answers"
        plain.append(without), drafted.append(with_guesses), ratios.append(without / with_guesses)
    tokens, steps, right, guesses = map(int, re.search(r"(\d+) tokens in (\d+) steps; (\d+) of (\d+)", said).groups())
    print(json.dumps(dict(case=name, tokens=tokens, steps=steps, right=right, guesses=guesses, ratio=round(statistics.median(ratios), 3),
                          ratios=[round(ratio, 3) for ratio in ratios], tokens_per_second=round(tokens / min(drafted), 1),
                          tokens_per_second_without=round(tokens / min(plain), 1))), flush=True)


def peer(arguments, inputs, guesses):
    ids = [[int(token) for token in line.split()] for line in inputs]

    def run(count):
        done = subprocess.run([arguments.peer, "-c", PEER, arguments.model, json.dumps(ids), str(arguments.max_tokens), str(arguments.threads), str(count)],
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])
    plain, drafted = run(0), run(guesses)
    tokens = sum(map(len, plain[1]))
    print(json.dumps(dict(case=f"transformers, prompt_lookup_num_tokens={guesses}", tokens=tokens, ratio=round(plain[0] / drafted[0], 3),
                          tokens_per_second=round(tokens / drafted[0], 1), tokens_per_second_without=round(tokens / plain[0], 1))), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quintet", default="build/quintet")
    parser.add_argument("--model")
    parser.add_argument("--assistant")
    parser.add_argument("--input", type=pathlib.Path)
    parser.add_argument("--folder", default="/tmp/drafts-compare", help="of the random model")
    parser.add_argument("--max_tokens", type=int, default=128)
    parser.add_argument("--guesses", default="2,4,8")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer", help="a Python with torch and transformers")
    arguments = parser.parse_args()
    arguments.more = []
    if arguments.model is None:
        arguments.model = arguments.folder
        if not pathlib.Path(arguments.model, "config.json").exists():
            subprocess.run([arguments.peer or sys.executable, "-c", RANDOM_BASE, arguments.model], check=True)
    if arguments.input:
        inputs = arguments.input.read_text().splitlines()
    else:
        arguments.more = ["--ids"]
        draw = random.Random(0)
        inputs = [" ".join(str(draw.randrange(3, 32000)) for _ in range(64)) + " 1" for _ in range(4)]
    for guesses in map(int, arguments.guesses.split(",")):
        compare(arguments, inputs, f"prompt lookup of {guesses}", f"--prompt_lookup_num_tokens={guesses}")
        if arguments.assistant:
            compare(arguments, inputs, f"assistant, {guesses} guesses", f"--assistant_model={arguments.assistant}", f"--num_assistant_tokens={guesses}")
        if arguments.peer and not arguments.input:
            peer(arguments, inputs, guesses)


if __name__ == "__main__":
    main()
