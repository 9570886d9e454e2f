#!/usr/bin/env python3
"""Load for a server that speaks OpenAI's /v1/completions: how fast, how late, how well.

    bench/serve/load.py --url=http://127.0.0.1:8000 --rate=20 --seconds=60       requests come as a Poisson process
    bench/serve/load.py --url=http://127.0.0.1:8000 --clients=200 --seconds=600  each client asks again when answered

Answers are streamed. Prints one JSON object: requests, errors, tokens/s, and of the time to the first token, between
tokens and to the end the median and the 99th percentile; with --pid also the process's resident memory, before and
after. Exit status 1 if a request failed. Standard library only."""

import argparse
import asyncio
import json
import math
import random
import sys
import time
import urllib.parse


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--rate", type=float, default=0, help="requests a second, Poisson")
    parser.add_argument("--clients", type=int, default=0, help="that many at a time instead")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--prompt_tokens", type=int, default=0, help="prompts of about so many random ids; 0: of --prompts")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--prompts", help="file of prompts, one a line")
    parser.add_argument("--max_tokens", type=int, default=64, help="answers have 1 to so many tokens, evenly")
    parser.add_argument("--ignore_eos", action="store_true", help="answers are as long as asked: biases token 1 away")
    parser.add_argument("--patience", type=float, default=600, help="seconds after which an answer that is not whole is an error")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pid", type=int, help="of the server")
    parser.add_argument("--name", default="ours")
    return parser.parse_args()


def resident(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10


def quantile(values, q):
    """The q-quantile by nearest rank, to a tenth of a millisecond; null without values."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, math.ceil(q * len(ordered)) - 1)], 4) if ordered else None


class Load:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.where = urllib.parse.urlsplit(options.url)
        self.prompts = open(options.prompts).read().splitlines() if options.prompts else ["words: 1234", "number: nine"]
        self.first, self.between, self.whole = [], [], []
        self.tokens, self.errors = 0, []

    def body(self):
        o = self.options
        prompt = self.random.choice(self.prompts)
        if o.prompt_tokens:
            length = self.random.randint(max(1, o.prompt_tokens // 2), o.prompt_tokens * 3 // 2)
            prompt = [self.random.randrange(3, o.vocabulary) for _ in range(length)]
        body = {"prompt": prompt, "max_tokens": self.random.randint(1, o.max_tokens), "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True}}
        if o.ignore_eos:
            body["logit_bias"] = {"1": -100}
        return json.dumps(body).encode()

    async def ask(self, body):
        try:
            await asyncio.wait_for(self.exchange(body), self.options.patience)
        except asyncio.TimeoutError:
            self.errors.append(f"no whole answer in {self.options.patience:g} s")

    async def exchange(self, body):
        began = time.perf_counter()
        try:
            reader, writer = await asyncio.open_connection(self.where.hostname, self.where.port)
            try:
                writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
                             b"Connection: close\r\nContent-Length: %d\r\n\r\n" % (self.where.netloc.encode(), len(body)) + body)
                await self.read(reader, began)
            finally:
                writer.close()
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            self.errors.append(repr(error))

    async def read(self, reader, began):
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            self.errors.append(head.split(b"\r\n")[0].decode())
            return
        first, last, done, tokens = None, None, False, 0
        async for line in reader:  # the chunks' own lines are no events
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                done = True
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise ValueError(event["error"]["message"])
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
            last = time.perf_counter()
            first = first or last
        if not done:
            raise ValueError("the stream ended early")
        self.first.append(first - began)
        self.whole.append(last - began)
        if tokens > 1:
            self.between.append((last - first) / (tokens - 1))
        self.tokens += tokens

    async def run(self):
        end = time.perf_counter() + self.options.seconds
        if self.options.clients:
            async def client():
                while time.perf_counter() < end:
                    await self.ask(self.body())
            await asyncio.gather(*(client() for _ in range(self.options.clients)))
            return
        tasks, at = set(), time.perf_counter()
        while (at := at + self.random.expovariate(self.options.rate)) < end:
            await asyncio.sleep(max(0, at - time.perf_counter()))
            task = asyncio.create_task(self.ask(self.body()))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)


def main():
    options = arguments()
    if bool(options.rate) == bool(options.clients):
        sys.exit("load: give --rate or --clients")
    load = Load(options)
    memory = [resident(options.pid)] if options.pid else None
    began = time.perf_counter()
    if memory:  # after the first fifth everything has been used once
        async def watched():
            task = asyncio.create_task(load.run())
            await asyncio.sleep(options.seconds / 5)
            memory.append(resident(options.pid))
            await task
        asyncio.run(watched())
        memory.append(resident(options.pid))
    else:
        asyncio.run(load.run())
    seconds = time.perf_counter() - began
    result = {"name": options.name, "rate": options.rate, "clients": options.clients, "seconds": round(seconds, 1),
              "requests": len(load.whole), "errors": len(load.errors), "error_examples": sorted(set(load.errors))[:3],
              "requests_per_second": round(len(load.whole) / seconds, 2), "tokens_per_second": round(load.tokens / seconds, 1)}
    for name, values in ("first_token", load.first), ("between_tokens", load.between), ("request", load.whole):
        result[f"{name}_seconds"] = {"p50": quantile(values, 0.5), "p99": quantile(values, 0.99)}
    if memory:
        result["resident_mib"] = dict(zip(("before", "after_a_fifth", "after"), (value >> 20 for value in memory)))
    print(json.dumps(result))
    sys.exit(1 if load.errors else 0)


if __name__ == "__main__":
    main()
