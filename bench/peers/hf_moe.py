"""Hugging Face's Switch layer and dense MLP in PyTorch: milliseconds of processor time, forward and with gradients.
For bench/moe_compare.py."""

import common

arguments = common.moe_arguments()

import torch  # noqa: E402  (after the threads are limited)
import transformers  # noqa: E402
from transformers.models.switch_transformers import modeling_switch_transformers as switch  # noqa: E402

torch.set_num_threads(arguments.threads)


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

    common.print_layer(f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}", name, experts,
                       arguments.tokens, forward, both)


def config(experts):
    return switch.SwitchTransformersConfig(d_model=arguments.embed, d_ff=arguments.mlp, num_experts=experts,
                                           expert_capacity=round(1.25 * arguments.tokens / experts), dropout_rate=0.0,
                                           router_jitter_noise=0.0)


def main():
    measure("dense", switch.SwitchTransformersDenseActDense(config(1)), 1)
    for experts in map(int, arguments.experts.split(",")):
        measure("switch", switch.SwitchTransformersSparseMLP(config(experts)), experts)


main()
