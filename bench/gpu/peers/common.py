"""What the peer programs share: arguments, the lines they print, waiting for their turn, timing.

    args = common.arguments("what it is", variants=["eager", ...])
    jobs = [common.Job(case, "eager", make)]        # make() -> {part: [callable, ...]}, callables used in turn
    common.run_torch(args, jobs)

A job that fails prints a line with the error; the others go on.
"""

import argparse
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import workloads  # noqa: E402, F401


STARTED = time.monotonic()


def ask_for_time_to_compile(args):
    """Raises what makes a job late when --compile_seconds are over since the program's start."""
    if time.monotonic() - STARTED > args.compile_seconds:
        raise TimeoutError(f"not compiled: {args.compile_seconds:.0f} s were over")


def training_flags(parser):
    """Those of the programs that train with PyTorch."""
    parser.add_argument("--case", required=True, help="its whole name")
    parser.add_argument("--attention", default="sdpa", choices=["eager", "sdpa"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--max_autotune", action="store_true")


def milliseconds(call, synchronize):
    """Of one call and what it leaves in flight."""
    synchronize()
    started = time.perf_counter()
    call()
    synchronize()
    return 1e3 * (time.perf_counter() - started)


def each_in_time(args, jobs, measure):
    """measure(job) of those that have not failed, until --seconds are over; a variant that fails is a result."""
    wait_for_turn(args)
    started = time.monotonic()
    for job in jobs:
        if job.error or out_of_time(args, started):
            continue
        try:
            measure(job)
        except Exception as error:  # noqa: BLE001
            job.fail(error)


def out_of_time(args, started):
    """Whether --seconds are over since then; bench/gpu/run is told, so that it asks again for what is left out."""
    over = time.monotonic() - started > args.seconds
    if over:
        print_line(late=True)
    return over


def hf_model(transformers, size, **more):
    """Hugging Face's T5 1.1 with random weights: two tables, one for both inputs and one for the logits. transformers 5
    makes one of them all, or, told otherwise after T5Config has been made, one each."""
    config = transformers.T5Config(
        vocab_size=workloads.VOCABULARY, d_model=size["emb_dim"], d_kv=size["head_dim"], d_ff=size["mlp_dim"],
        num_layers=size["num_layers"], num_decoder_layers=size["num_layers"], num_heads=size["num_heads"],
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, dropout_rate=0.0, decoder_start_token_id=0, **more)
    config.tie_word_embeddings = False
    model = transformers.T5ForConditionalGeneration(config)
    for stack in (model.encoder, model.decoder):
        stack.set_input_embeddings(model.shared)
    return model


def arguments(description, add=None):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small shapes, few repetitions")
    parser.add_argument("--wait", action="store_true", help="wait for a line on stdin before measuring")
    parser.add_argument("--cases", default="", help="only cases whose names contain one of these, comma-separated")
    parser.add_argument("--variants", default="", help="only these variants, comma-separated")
    parser.add_argument("--skip", action="append", default=[], metavar="CASE VARIANT ROUND|failed",
                        help="what an earlier call measured; may be repeated")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=45, help="after these no further job of a round is begun")
    parser.add_argument("--compile_seconds", type=float, default=150, help="after these nothing more is compiled")
    if add:
        add(parser)
    args = parser.parse_args()
    if args.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if args.tiny:
        args.iterations = min(args.iterations, 3)
    return args


def print_line(**line):
    print(json.dumps(line), flush=True)


def short(error, most=240):
    """One line of an exception."""
    text = f"{type(error).__name__}: {error}".replace("\n", " ")
    return text[:most]


def wait_for_turn(args):
    """Tells that all is compiled and waits until the machine is free."""
    print_line(ready=True)
    if args.wait and not sys.stdin.readline():
        raise SystemExit("nobody waits for the figures any more")


def measure(args, jobs, time_calls, release=lambda args: None):
    """Waits for the turn, then times the calls of every job in rounds of alternating direction."""
    wait_for_turn(args)
    for round_number in range(1, args.rounds + 1):
        started = time.monotonic()
        for job in jobs if round_number % 2 else list(reversed(jobs)):
            if job.error or job.is_done(args, [round_number]) or out_of_time(args, started):
                continue
            try:
                for part, calls in job.make().items():
                    job.record(part, round_number, time_calls(args, calls, args.iterations))
                    del calls
            except Exception as error:  # noqa: BLE001 - a variant that fails is a result
                job.fail(error)
            release(args)


class Job:
    """One variant of one case. make() gives {part: [callables]}; compiles: worth a call before the turn."""

    def __init__(self, case, variant, make, compiles=False, note=""):
        self.case, self.variant, self.make, self.compiles, self.note = case, variant, make, compiles, note
        self.error = None

    def record(self, part, round_number, ms):
        line = dict(workload=self.case["workload"], case=self.case["name"], part=part, variant=self.variant,
                    round=round_number, ms=[round(x, 5) for x in ms])
        if self.note:
            line["note"] = self.note
        print_line(**line)

    def fail(self, error):
        self.error = short(error)
        print_line(workload=self.case["workload"], case=self.case["name"], part="", variant=self.variant,
                   error=self.error, late=isinstance(error, TimeoutError))

    def is_done(self, args, rounds):
        """By --skip."""
        done = [f"{self.case['name']} {self.variant} {of}" for of in ("failed", *rounds)]
        return done[0] in args.skip or all(one in args.skip for one in done[1:])


def chosen(args, jobs):
    cases = [word for word in args.cases.split(",") if word]
    variants = [word for word in args.variants.split(",") if word]
    return [job for job in jobs if (not cases or any(word in job.case["name"] for word in cases))
            and (not variants or job.variant in variants) and not job.is_done(args, range(1, args.rounds + 1))]


def copies_for(byte_count, tiny):
    """How many sets of operands make a round longer than the cache remembers."""
    return 1 if tiny else max(1, min(8, -(-150_000_000 // max(1, byte_count))))


# --- torch ---------------------------------------------------------------------------------------


def time_torch(args, calls, iterations):
    """Milliseconds of single calls, `calls` in turn. On a GPU by events, with the queue filled first."""
    import torch

    for i in range(max(3, len(calls)) if args.device == "cuda" else 1):
        calls[i % len(calls)]()
    if args.device == "cpu":
        times = []
        for i in range(iterations):
            started = time.perf_counter()
            calls[i % len(calls)]()
            times.append(1e3 * (time.perf_counter() - started))
        return times
    torch.cuda.synchronize()
    started = torch.cuda.Event(enable_timing=True)
    once = torch.cuda.Event(enable_timing=True)
    started.record()
    calls[0]()
    once.record()
    torch.cuda.synchronize()
    if started.elapsed_time(once) > 200:  # slow ones need not be repeated as often
        iterations = max(5, min(iterations, int(4000 / started.elapsed_time(once))))
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
              for _ in range(iterations)]
    torch.cuda._sleep(20_000_000)  # about 10 ms in which the host gets ahead
    for i, (begin, end) in enumerate(events):
        begin.record()
        calls[i % len(calls)]()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in events]


def release_torch(args):
    import gc

    import torch

    gc.collect()
    if args.device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def run_torch(args, jobs):
    """Compiles, waits for the turn, measures every job in rounds of alternating direction."""
    jobs = chosen(args, jobs)
    for job in jobs:
        if not job.compiles:
            continue
        try:
            ask_for_time_to_compile(args)
            for calls in job.make().values():
                calls[0]()
        except Exception as error:  # noqa: BLE001 - a variant that fails is a result
            job.fail(error)
        release_torch(args)
    measure(args, jobs, time_torch, release_torch)


# --- jax -----------------------------------------------------------------------------------------


def time_jax(args, calls, iterations):
    """Milliseconds a call, from blocks of calls that are dispatched together: JAX has no events."""
    import jax

    blocks, each = (2, 1) if args.tiny else (5, max(4, iterations // 5))
    for i in range(2):
        jax.block_until_ready(calls[i % len(calls)]())
    times = []
    for block in range(blocks):
        started = time.perf_counter()
        last = None
        for i in range(each):
            last = calls[(block * each + i) % len(calls)]()
        jax.block_until_ready(last)
        times.append(1e3 * (time.perf_counter() - started) / each)
    return times


def run_jax(args, jobs):
    """As run_torch; make() returns compiled functions bound to their operands."""
    jobs = chosen(args, jobs)
    for job in jobs:
        try:
            import jax

            ask_for_time_to_compile(args)
            for calls in job.make().values():
                jax.block_until_ready(calls[0]())
        except Exception as error:  # noqa: BLE001
            job.fail(error)
    measure(args, jobs, time_jax)
