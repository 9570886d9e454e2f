"""A training step of Hugging Face's T5ForConditionalGeneration: eager PyTorch, fused AdamW, dropout 0."""

import common

args = common.arguments()
common.limit_threads(args.threads)

import torch  # noqa: E402
import transformers  # noqa: E402

torch.manual_seed(0)
torch.set_num_threads(args.threads)
size = common.SIZES[args.model]
config = transformers.T5Config(
    vocab_size=common.VOCABULARY, d_model=size["emb_dim"], d_kv=size["head_dim"], d_ff=size["mlp_dim"],
    num_layers=size["num_layers"], num_decoder_layers=size["num_layers"], num_heads=size["num_heads"],
    feed_forward_proj="gated-gelu", tie_word_embeddings=False, dropout_rate=0.0,
    decoder_start_token_id=0)
model = transformers.T5ForConditionalGeneration(config).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
inputs = torch.randint(1, common.VOCABULARY, (args.batch, args.inputs))
labels = torch.randint(1, common.VOCABULARY, (args.batch, args.targets))
mask = torch.ones_like(inputs)


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = model(input_ids=inputs, attention_mask=mask, labels=labels, use_cache=False).loss
    loss.backward()
    optimizer.step()
    return loss.item()


common.measure(step, args.steps, args.batch * (args.inputs + args.targets),
               peer=f"transformers {transformers.__version__}, torch {torch.__version__}",
               attention=model.config._attn_implementation)
