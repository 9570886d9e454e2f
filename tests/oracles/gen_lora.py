"""lora/<case>/: LoRA adapters that PEFT writes for directories of huggingface/, and what transformers with PEFT says with them.

Reference: peft 0.21, transformers 5.23, torch 2.15 (CPU, float32). Run with the torch environment's python:
gen_lora.py --bases tests/fixtures/huggingface --out tests/fixtures/lora

DIR/<case>/adapter_config.json, adapter_model.safetensors   as PeftModel.save_pretrained writes them, B drawn instead of zeros
DIR/<case>/expected.json         base: the directory of huggingface/ whose inputs and targets these are; logits_rtol
DIR/<case>/expected.safetensors  logits_<i> [tokens of target i, vocab]

gen_lora.py --compare BASE ADAPTER LOGITS: the largest difference between the logits of an adapter that Quintet wrote, loaded by PEFT, and those
of LOGITS, the merged directory that `quintet convert --to=hf` wrote; exit status 1 above the tolerance.
"""
import argparse
import json
import pathlib
import sys

import peft
import torch
import transformers
from safetensors.torch import save_file

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
RTOL = 2e-5

CASES = {
    "plain": ("t5_1_1", dict(r=4, lora_alpha=8, target_modules=["q", "v"])),
    "all_kernels": ("t5_1_1", dict(r=3, lora_alpha=5, target_modules="all-linear")),
    "patterns": ("t5_1_0", dict(r=2, lora_alpha=4, use_rslora=True, target_modules=["q", "o", "wi", "wo"], rank_pattern={"DenseReluDense.wi": 5},
                                alpha_pattern={"block.1.layer.0.SelfAttention.q": 7})),
    "byt5": ("byt5", dict(r=4, lora_alpha=8, target_modules=["q", "k", "v", "o"])),
}


def load(folder):
  return transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()


def logits(model, ids, target):
  with torch.no_grad():
    return model(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([[0, *target[:-1]]])).logits[0]


def generate(bases, out):
  for number, (case, (base, options)) in enumerate(CASES.items()):
    torch.manual_seed(number)
    asked = json.loads((bases / base / "expected.json").read_text())
    model = peft.get_peft_model(load(bases / base), peft.LoraConfig(task_type="SEQ_2_SEQ_LM", **options)).eval()
    with torch.no_grad():
      for name, parameter in model.named_parameters():
        if "lora_B" in name:
          parameter.normal_(0, 0.3)
    folder = out / case
    folder.mkdir(parents=True, exist_ok=True)
    model.peft_config["default"].base_model_name_or_path = base
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    save_file({f"logits_{i}": logits(model, ids, target).contiguous() for i, (ids, target) in enumerate(zip(asked["inputs"], asked["targets"]))},
              folder / "expected.safetensors")
    (folder / "expected.json").write_text(json.dumps({"base": base, "logits_rtol": RTOL, "peft": peft.__version__}) + "\n")


def compare(base, adapter, merged):
  ids, target = [5, 9, 33, 7, 1], [8, 3, 4, 1]
  ours = logits(load(merged), ids, target)
  theirs = logits(peft.PeftModel.from_pretrained(load(base), adapter).eval(), ids, target)
  plain = logits(load(base), ids, target)
  most = (ours - theirs).abs().max().item()
  scale = theirs.abs().max().item()
  print(json.dumps({"difference": most, "largest": scale, "from_base": (theirs - plain).abs().max().item()}))
  return most <= RTOL * scale


if __name__ == "__main__":
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--bases", type=pathlib.Path)
  parser.add_argument("--out", type=pathlib.Path)
  parser.add_argument("--compare", nargs=3)
  args = parser.parse_args()
  if args.compare:
    sys.exit(0 if compare(*args.compare) else 1)
  generate(args.bases, args.out)
