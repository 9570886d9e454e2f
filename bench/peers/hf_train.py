"""A training step of Hugging Face's T5ForConditionalGeneration: eager PyTorch, fused AdamW, dropout 0."""

import common

args = common.arguments()
common.limit_threads(args.threads)

import torch  # noqa: E402
import transformers  # noqa: E402

torch.manual_seed(0)
torch.set_num_threads(args.threads)
model = common.hf_model(transformers, args.model, dropout_rate=0.0).train()
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
