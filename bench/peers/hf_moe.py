"""Hugging Face's Switch layer and dense MLP in PyTorch: milliseconds of processor time, forward and with gradients.
For bench/moe_compare.py."""

import argparse
import json
import time

from common import limit_threads

parser = argparse.ArgumentParser()
parser.add_argument("--tokens", type=int, default=4096)
parser.add_argument("--embed", type=int, default=512)
parser.add_argument("--mlp", type=int, default=1024)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--experts", default="8,16,32,64")
arguments = parser.parse_args()
limit_threads(arguments.threads)

import torch  # noqa: E402  (after the threads are limited)
import transformers  # noqa: E402
from transformers.models.switch_transformers import modeling_switch_transformers as switch  # noqa: E402

torch.set_num_threads(arguments.threads)


def best(function):
    function()
    times = []
    for _ in range(5):
        began = time.process_time()
        function()
        times.append(1000 * (time.process_time() - began))
    return round(min(times), 2)


def measure(name, layer, experts):
    torch.manual_seed(0)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.04)
    x = torch.randn(8, arguments.tokens // 8, arguments.embed, requires_grad=True)
    dy = torch.randn_like(x)

    def forward():
        with torch.no_grad():
            layer(x)

    def both():
        layer.zero_grad()
        x.grad = None
        layer(x).backward(dy)

    print(json.dumps({"program": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}", "layer": name,
                      "experts": experts, "tokens": arguments.tokens, "forward_ms": best(forward),
                      "forward_backward_ms": best(both)}), flush=True)


def config(experts):
    return switch.SwitchTransformersConfig(d_model=arguments.embed, d_ff=arguments.mlp, num_experts=experts,
                                           expert_capacity=round(1.25 * arguments.tokens / experts), dropout_rate=0.0,
                                           router_jitter_noise=0.0)


def main():
    measure("dense", switch.SwitchTransformersDenseActDense(config(1)), 1)
    for experts in map(int, arguments.experts.split(",")):
        measure("switch", switch.SwitchTransformersSparseMLP(config(experts)), experts)


main()
