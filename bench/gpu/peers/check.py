#!/usr/bin/env python3
"""Are the plain peers what they say they are? On the CPU, at tiny sizes, with the same parameters: torch_t5.py against
Hugging Face's T5, plain_jax_t5.py against torch_t5.py, plain_jax_optimizers.py against optax. A line a comparison; what
is not installed is not compared. Exit 1 if one is off.
"""

import importlib.util
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import workloads  # noqa: E402

MODEL, VOCABULARY = "t5_1_1_tiny", 96
workloads.VOCABULARY = VOCABULARY
size = workloads.SIZES[MODEL]
failed = []


def has(*names):
    return all(importlib.util.find_spec(name) for name in names)


def compare(what, difference, most):
    ok = difference <= most
    print(f"{'ok      ' if ok else 'FAILED  '}{what}: {difference:.2g}", flush=True)
    if not ok:
        failed.append(what)


def torch_model(attention, dropout=0.0):
    import torch

    import torch_t5

    torch.manual_seed(0)
    model = torch_t5.T5(size, attention, dropout, VOCABULARY)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.3)
    return model.eval()


def batch(torch):
    torch.manual_seed(1)
    inputs = torch.randint(3, VOCABULARY, (4, 40))
    labels = torch.randint(3, VOCABULARY, (4, 9))
    inputs[1, 30:], labels[2, 5:] = 0, -100
    return inputs, labels


def hugging_face(model):
    """The same model there."""
    import transformers

    transformers.logging.set_verbosity_error()
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=size["emb_dim"], d_kv=size["head_dim"], d_ff=size["mlp_dim"],
        num_layers=size["num_layers"], num_decoder_layers=size["num_layers"], num_heads=size["num_heads"],
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, dropout_rate=0.0, decoder_start_token_id=0,
        pad_token_id=0, eos_token_id=1)
    config.tie_word_embeddings = False  # what the constructor is told it forgets
    theirs = transformers.T5ForConditionalGeneration(config).eval()
    state = {"shared.weight": model.shared.weight, "lm_head.weight": model.lm_head.weight}
    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        state[f"{name}.embed_tokens.weight"] = model.shared.weight
        state[f"{name}.final_layer_norm.weight"] = stack.norm.weight
        state[f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = stack.bias
        for i, block in enumerate(stack.blocks):
            layers = [(block.norm_self, block.self_attention, "SelfAttention")]
            layers += [(block.norm_cross, block.cross_attention, "EncDecAttention")] if stack.decoder else []
            for at, (norm, attention, kind) in enumerate(layers):
                prefix = f"{name}.block.{i}.layer.{at}"
                state[f"{prefix}.layer_norm.weight"] = norm.weight
                state.update({f"{prefix}.{kind}.{k}.weight": getattr(attention, k).weight for k in "qkvo"})
            prefix = f"{name}.block.{i}.layer.{len(layers)}"
            state[f"{prefix}.layer_norm.weight"] = block.norm_mlp.weight
            state.update({f"{prefix}.DenseReluDense.{k}.weight": getattr(block.mlp, k).weight
                          for k in ("wi_0", "wi_1", "wo")})
    theirs.load_state_dict(state)
    return theirs


def check_torch():
    import torch

    import torch_t5

    inputs, labels = batch(torch)
    models = {how: torch_model(how) for how in ("eager", "sdpa")}
    losses = {how: model(inputs, labels, padded=True).item() for how, model in models.items()}
    compare("torch: loss with sdpa against eager", abs(losses["sdpa"] - losses["eager"]), 1e-5)
    whole = inputs.clamp(min=3)
    answers = {}
    for how in "greedy", "beam4":
        rows = 16 if how == "beam4" else 4
        for fixed in False, True:
            generate = torch_t5.Generator(models["sdpa"], rows, 40, 12, fixed=fixed)
            answers[how, fixed] = generate(whole, how)
            again = generate(whole, how)
            compare(f"torch: {how}, the second call", int((again != answers[how, fixed]).sum()), 0)
        compare(f"torch: {how} with a fixed cache against a growing one",
                int((answers[how, False] != answers[how, True]).sum()), 0)
    torch.manual_seed(2)
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).repeat(4000, 1)
    drawn = torch.bincount(torch_t5.top_p_sample(logits, 0.9), minlength=4) / 4000
    compare("torch: top-p's shares", float((drawn - torch.tensor([0.5, 0.3, 0.15, 0]) / 0.95).abs().max()), 0.03)
    if not has("transformers"):
        return
    theirs = hugging_face(models["eager"])
    loss = theirs(input_ids=inputs, attention_mask=(inputs > 0).long(), labels=labels).loss.item()
    compare("torch: loss against Hugging Face's", abs(loss - losses["eager"]), 1e-5)
    for how, options in (("greedy", {}), ("beam4", dict(num_beams=4, length_penalty=0.0))):
        out = theirs.generate(whole, attention_mask=torch.ones_like(whole), max_new_tokens=12, min_new_tokens=12,
                              do_sample=False, **options)
        compare(f"torch: {how} against Hugging Face's", int((out[:, 1:] != answers[how, False]).sum()), 0)


def jax_parameters(model):
    """plain_jax_t5's tree of a torch_t5 model."""
    def table(x):
        return x.detach().numpy().T

    def attention(norm, a):
        return dict(norm=norm.weight.detach().numpy(), **{k: table(getattr(a, k).weight) for k in "qkvo"})

    def stack(s):
        layers = []
        for block in s.blocks:
            layer = {"self": attention(block.norm_self, block.self_attention)}
            if s.decoder:
                layer["cross"] = attention(block.norm_cross, block.cross_attention)
            layer["mlp"] = dict(norm=block.norm_mlp.weight.detach().numpy(),
                                **{k: table(getattr(block.mlp, k).weight) for k in ("wi_0", "wi_1", "wo")})
            layers.append(layer)
        return dict(bias=table(s.bias), norm=s.norm.weight.detach().numpy(), layers=layers)

    return dict(embed=model.shared.weight.detach().numpy(), logits=table(model.lm_head.weight),
                encoder=stack(model.encoder), decoder=stack(model.decoder))


def check_jax():
    import jax
    import jax.numpy as jnp

    import plain_jax_t5 as t5

    shapes = jax.tree.map(jnp.shape, t5.random_parameters(MODEL), is_leaf=None)
    compare("jax: parameters", abs(sum(x.size for x in jax.tree.leaves(t5.random_parameters(MODEL)))
                                   - workloads.parameters_of(MODEL)), 0)
    if not has("torch"):
        return
    import torch

    import torch_t5

    model = torch_model("sdpa")
    parameters = jax.tree.map(jnp.asarray, jax_parameters(model))
    compare("jax: shapes", int(jax.tree.map(jnp.shape, parameters) != shapes), 0)
    inputs, labels = batch(torch)
    logits = t5.logits_of(parameters, MODEL, inputs.numpy(), labels.clamp(min=0).numpy(), jnp.float32, padded=True)
    loss = float(t5.loss_of(logits, labels.clamp(min=0).numpy(), z_loss=0.0))
    compare("jax: loss against torch's", abs(loss - model(inputs, labels, padded=True).item()), 1e-4)
    whole = inputs.clamp(min=3)
    key = jax.random.PRNGKey(0)
    for how, rows in (("greedy", 4), ("beam4", 16)):
        want = torch_t5.Generator(model, rows, 40, 12)(whole, how).numpy()
        got = t5.decode(parameters, MODEL, jnp.asarray(whole.numpy()), 12, how, key, jnp.float32)
        compare(f"jax: {how} against torch's", int((want != jax.device_get(got)).sum()), 0)
    sampled = t5.decode(parameters, MODEL, jnp.asarray(whole.numpy()), 12, "top_p", key, jnp.float32)
    compare("jax: top-p makes other tokens than greedy, none of them the end",
            int((sampled == 1).sum()) + int(bool((sampled == got).all())), 0)


def check_optimizers():
    import jax
    import jax.numpy as jnp
    import optax

    import plain_jax_optimizers as ours

    for name, theirs in (("adamw", optax.adamw(1e-2)), ("adafactor", optax.adafactor(1e-2))):
        parameters = {shape: jax.random.normal(jax.random.PRNGKey(len(shape)), shape)
                      for shape in ((130, 140), (130, 40), (7,))}
        start, update = getattr(ours, name)(1e-2)
        mine, state = parameters, start(parameters)
        other, their_state = parameters, theirs.init(parameters)
        for step in range(5):
            gradients = jax.tree.map(lambda p: jnp.sin(p * 7 + step), parameters)
            mine, state = update(mine, gradients, state)
            updates, their_state = theirs.update(gradients, their_state, other)
            other = optax.apply_updates(other, updates)
        worst = max(float(jnp.abs(mine[k] - other[k]).max()) for k in mine)
        compare(f"jax: {name} against optax's", worst, 2e-6)


if __name__ == "__main__":
    if has("torch"):
        check_torch()
    if has("jax"):
        check_jax()
    if has("jax", "optax"):
        check_optimizers()
    sys.exit(f"off: {', '.join(failed)}" if failed else 0)
