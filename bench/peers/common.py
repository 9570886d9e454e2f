"""What the peer programs share: arguments, model sizes, timing, the JSON line they print."""

import argparse
import json
import os
import statistics
import time

# T5 1.1: width, heads, head size, mlp width, layers a stack. Vocabulary 32128, gated GELU, untied logits.
CANNOT = 4  # exit code of a peer that does not do what is asked on this machine

SIZES = {
    "t5_1_1_small": dict(emb_dim=512, num_heads=6, head_dim=64, mlp_dim=1024, num_layers=8),
    "t5_1_1_base": dict(emb_dim=768, num_heads=12, head_dim=64, mlp_dim=2048, num_layers=12),
}
VOCABULARY = 32128


def hf_model(transformers, name, **more):
    """Hugging Face's T5 1.1 of a size with random weights. transformers 5 makes one table of all embeddings and the logits,
    a fifth less than T5 1.1 small has, or, told otherwise after T5Config has been made, one each; T5 1.1 has two."""
    size = SIZES[name]
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=size["emb_dim"], d_kv=size["head_dim"], d_ff=size["mlp_dim"],
        num_layers=size["num_layers"], num_decoder_layers=size["num_layers"], num_heads=size["num_heads"],
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=0, **more)
    config.tie_word_embeddings = False
    model = transformers.T5ForConditionalGeneration(config)
    for stack in (model.encoder, model.decoder):
        stack.set_input_embeddings(model.shared)
    tables = [name for name, values in model.named_parameters() if values.shape == (VOCABULARY, size["emb_dim"])]
    assert tables == ["shared.weight", "lm_head.weight"], tables
    return model


def arguments(**defaults):
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="t5_1_1_small", choices=sorted(SIZES))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--inputs", type=int, default=defaults.get("inputs", 256))
    parser.add_argument("--targets", type=int, default=defaults.get("targets", 64))
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    return parser.parse_args()


def limit_threads(threads):
    """Must run before the library is imported: they read the environment and the affinity at start."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[:threads])


def measure(step, steps, tokens, **about):
    """Runs step() once to warm up and `steps` times timed; prints one JSON object."""
    started = time.perf_counter()
    step()
    warm_up = time.perf_counter() - started
    seconds = []
    for _ in range(steps):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    print(json.dumps({
        "tokens_per_second": tokens / min(seconds),
        "seconds_per_step": {"min": min(seconds), "median": statistics.median(seconds)},
        "warm_up_seconds": warm_up, **about}))


def moe_arguments():
    """Those of a program beside bench/moe_bench.cpp. Limits the threads: to be called before the library is imported."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--embed", type=int, default=512)
    parser.add_argument("--mlp", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--experts", default="8,16,32,64")
    parsed = parser.parse_args()
    limit_threads(parsed.threads)
    return parsed


def least_processor_ms(function):
    """Of five calls, after one to warm up."""
    function()
    times = []
    for _ in range(5):
        began = time.process_time()
        function()
        times.append(1000 * (time.process_time() - began))
    return round(min(times), 2)


def print_layer(program, layer, experts, tokens, forward, both):
    """Times the two calls; prints one JSON object."""
    print(json.dumps({"program": program, "layer": layer, "experts": experts, "tokens": tokens,
                      "forward_ms": least_processor_ms(forward), "forward_backward_ms": least_processor_ms(both)}), flush=True)
