#!/usr/bin/env python3
"""What one would write in an afternoon: a T5 behind FastAPI, by transformers or CTranslate2, as bench/serve/compare.py's
peer. POST /v1/completions with token ids, temperature 0 and a stream that brings the answer at once (neither engine can
let a request join a running batch of an encoder-decoder): requests that wait are put into one batch, at most --batch.

    bench/serve/peer_server.py transformers DIR --port=8001
    bench/serve/peer_server.py ctranslate2 DIR --port=8002       DIR: converted, see bench/peers/ct2_generate.py"""

import argparse
import asyncio
import json
import os
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("engine", choices=["transformers", "ctranslate2"])
parser.add_argument("model")
parser.add_argument("--port", type=int, default=8001)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--threads", type=int, default=2)
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(options.threads)

import fastapi  # noqa: E402
import fastapi.responses  # noqa: E402
import uvicorn  # noqa: E402


class Transformers:
    def __init__(self):
        import torch
        import transformers
        self.torch = torch
        torch.set_num_threads(options.threads)
        self.model = transformers.T5ForConditionalGeneration.from_pretrained(options.model).eval()

    def __call__(self, prompts, lengths):
        longest = max(map(len, prompts))
        ids = self.torch.tensor([prompt + [0] * (longest - len(prompt)) for prompt in prompts])
        with self.torch.inference_mode():
            out = self.model.generate(input_ids=ids, attention_mask=(ids != 0).long(), max_new_tokens=max(lengths),
                                      min_new_tokens=max(lengths), do_sample=False)
        return [row[1:1 + length].tolist() for row, length in zip(out, lengths)]


class CTranslate2:
    def __init__(self):
        import ctranslate2
        self.translator = ctranslate2.Translator(options.model, intra_threads=options.threads, compute_type="float32")

    def __call__(self, prompts, lengths):
        names = [[f"t{i}" for i in prompt] for prompt in prompts]
        out = self.translator.translate_batch(names, beam_size=1, max_decoding_length=max(lengths),
                                              min_decoding_length=max(lengths))
        return [result.hypotheses[0][:length] for result, length in zip(out, lengths)]


app = fastapi.FastAPI()
waiting = asyncio.Queue()
generate = Transformers() if options.engine == "transformers" else CTranslate2()


async def batches():
    loop = asyncio.get_running_loop()
    while True:
        some = [await waiting.get()]
        while len(some) < options.batch and not waiting.empty():
            some.append(waiting.get_nowait())
        answers = await loop.run_in_executor(None, generate, [one[0] for one in some], [one[1] for one in some])
        for (_, _, future), answer in zip(some, answers):
            if not future.cancelled():
                future.set_result(answer)


@app.on_event("startup")
async def start():
    asyncio.create_task(batches())


@app.get("/ready")
def ready():
    return {"status": "ready"}


@app.post("/v1/completions")
async def complete(request: fastapi.Request):
    body = json.loads(await request.body())
    future = asyncio.get_running_loop().create_future()
    await waiting.put((body["prompt"], body["max_tokens"], future))
    answer = await future
    head = {"id": "cmpl", "object": "text_completion", "created": int(time.time()), "model": "peer"}
    text = {**head, "choices": [{"index": 0, "text": " ".join(map(str, answer)), "finish_reason": "length"}]}
    usage = {**head, "choices": [], "usage": {"completion_tokens": len(answer)}}
    events = "".join(f"data: {json.dumps(event)}\n\n" for event in (text, usage)) + "data: [DONE]\n\n"
    return fastapi.responses.Response(events, media_type="text/event-stream")


uvicorn.run(app, port=options.port, log_level="error")
