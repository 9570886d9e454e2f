"""CTranslate2's generation with a randomly initialised T5 1.1, every output exactly --targets tokens long."""

import os
import sys
import tempfile

import common

args = common.arguments(inputs=128, targets=128)
common.limit_threads(args.threads)

import ctranslate2  # noqa: E402
import numpy as np  # noqa: E402


class Tokenizer:
    """As much of a tokenizer as the converter asks for: ids under made-up names, since only speed counts."""

    pad_token, eos_token, unk_token = "<pad>", "</s>", "<unk>"

    def get_vocab(self):
        names = ["<pad>", "</s>", "<unk>"] + [f"t{i}" for i in range(3, common.VOCABULARY)]
        return {name: i for i, name in enumerate(names)}

    def convert_ids_to_tokens(self, i):
        return "<pad>" if i == 0 else f"t{i}"


def convert(folder):
    import torch
    import transformers

    torch.manual_seed(0)
    model = common.hf_model(transformers, args.model)
    source = os.path.join(folder, "hf")
    model.save_pretrained(source)
    converter = ctranslate2.converters.TransformersConverter(source)
    converter.load_tokenizer = lambda *ignored, **ignored_too: Tokenizer()
    converter.load_model = lambda *ignored, **ignored_too: model  # reading it back would share the tables
    converter.convert(os.path.join(folder, "ct2"))


folder = os.environ.get("QUINTET_CT2_MODEL") or tempfile.mkdtemp(prefix="quintet-ct2-")
if not os.path.exists(os.path.join(folder, "ct2", "model.bin")):
    # In a process of its own: PyTorch must not count in this one's peak memory.
    child = os.fork()
    if child == 0:
        convert(folder)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        raise SystemExit("conversion failed")
if args.dtype not in ctranslate2.get_supported_compute_types("cpu"):
    print(f"CTranslate2 does not compute in {args.dtype} on this processor", file=sys.stderr)
    sys.exit(common.CANNOT)
translator = ctranslate2.Translator(os.path.join(folder, "ct2"), device="cpu", compute_type=args.dtype,
                                    inter_threads=1, intra_threads=args.threads)
random = np.random.default_rng(0)
sources = [[f"t{i}" for i in random.integers(3, common.VOCABULARY, args.inputs - 1)] + ["</s>"]
           for _ in range(args.batch)]


def step():
    results = translator.translate_batch(
        sources, beam_size=args.beams, max_decoding_length=args.targets, min_decoding_length=args.targets,
        max_input_length=0, return_scores=False)
    lengths = {len(result.hypotheses[0]) for result in results}
    assert lengths == {args.targets}, lengths


common.measure(step, args.steps, args.batch * args.targets,
               peer=f"ctranslate2 {ctranslate2.__version__} {translator.compute_type}")
