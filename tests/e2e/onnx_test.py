"""quintet export --format=onnx: graphs that give the ids of `quintet generate`, of every network that has one."""

import json
import os
import pathlib
import shutil
import subprocess

import e2e
from e2e import ROOT, quintet, tiny

KINDS = pathlib.Path(os.environ.get("QUINTET_FIXTURES", ROOT / "tests" / "fixtures")) / "huggingface"
INPUTS = [[5, 9, 1], [7, 1], [90, 91, 92, 93, 94, 95, 80, 1], [*range(2, 90), *range(3, 90), 1]]
FLAXFORMER = """
from __gin__ import dynamic_registration
from flaxformer.architectures.t5 import parallel_fused_decoder
from flaxformer.architectures.t5 import t5_architecture
from flaxformer.components import dense
from flaxformer.components import embedding
from flaxformer.components import relative_position_biases
from flaxformer.components.attention import dense_attention
from t5x import models
import seqio
include 'quintet/quickstart.gin'
include 'flaxformer/t5x/configs/t5/models/byt5_small.gin'
NUM_ENCODER_LAYERS = 2
NUM_DECODER_LAYERS = 2
NUM_HEADS = 2
HEAD_DIM = 8
EMBED_DIM = 16
MLP_DIM = 16
ACTIVATION_DTYPE = 'float32'
"""
MULTI_QUERY = """
dense_attention.MultiQueryDotProductAttention:
  num_heads = %NUM_HEADS
  head_dim = %HEAD_DIM
  use_bias = False
t5_architecture.EncoderLayer.attention = @dense_attention.MultiQueryDotProductAttention()
t5_architecture.DecoderLayer.self_attention = @dense_attention.MultiQueryDotProductAttention()
t5_architecture.DecoderLayer.encoder_decoder_attention = @dense_attention.MultiQueryDotProductAttention()
"""
ROTARY = """
dense_attention.MultiHeadDotProductAttention.use_rotary_embedding = True
t5_architecture.DecoderLayer.encoder_decoder_attention = @cross/dense_attention.MultiHeadDotProductAttention()
cross/dense_attention.MultiHeadDotProductAttention.use_rotary_embedding = False
"""
NO_BIASES = """
t5_architecture.Encoder.shared_relative_position_bias_factory = None
t5_architecture.Decoder.shared_relative_position_bias_factory = None
"""
DECODER = """
ARCHITECTURE = @t5_architecture.DecoderOnly()
t5_architecture.DecoderOnly.decoder_factory = @t5_architecture.Decoder
t5_architecture.Decoder.token_embedder_factory = @embedding.Embed
t5_architecture.DecoderLayer.encoder_decoder_attention = None
MODEL = @models.DecoderOnlyModel()
models.DecoderOnlyModel:
  module = %ARCHITECTURE
  vocabulary = %VOCABULARY
  optimizer_def = %OPTIMIZER
  feature_converter_cls = @seqio.PrefixLMFeatureConverter
"""
BOTH_WAYS = "models.DecoderOnlyModel.inputs_bidirectional_attention = True\n"
PARALLEL = "t5_architecture.DecoderLayer.parallel = True\n"
FUSED = """
t5_architecture.Decoder.layer_factory = @parallel_fused_decoder.ParallelFusedDecoderLayer
parallel_fused_decoder.ParallelFusedDecoderLayer.self_attention = @dense_attention.MultiQueryDotProductAttention()
parallel_fused_decoder.ParallelFusedDecoderLayer.mlp = @dense.MlpBlock()
dense.MlpBlock.precomputed_intermediates = True
dense_attention.MultiQueryDotProductAttention:
  num_heads = %NUM_HEADS
  head_dim = %HEAD_DIM
  out_features = %EMBED_DIM
  rescale_logits = True
  use_bias = False
"""
SPARSE = """
from __gin__ import dynamic_registration
import seqio
from flaxformer.architectures.moe import moe_architecture
from flaxformer.architectures.moe import moe_layers
from flaxformer.architectures.moe import routing
from flaxformer.architectures.t5 import t5_architecture
from flaxformer.components import dense
from flaxformer.components import embedding
from t5x.contrib.moe import models as moe_models
include 'quintet/switch_quickstart.gin'
"""
SPARSE_PARALLEL = """
moe_architecture.SparseEncoderLayer.parallel = True
moe_architecture.SparseDecoderLayer.parallel = True
moe_architecture.SparseDecoderLayer.extra_mlp = @dense.MlpBlock()
t5_architecture.DecoderLayer.parallel = True
"""
SPARSE_DECODER = """
ARCHITECTURE = @t5_architecture.DecoderOnly()
t5_architecture.DecoderOnly.decoder_factory = @moe_architecture.SparseDecoder
moe_architecture.SparseDecoder.token_embedder_factory = @embedding.Embed
t5_architecture.DecoderLayer.encoder_decoder_attention = None
moe_architecture.SparseDecoderLayer.encoder_decoder_attention = None
MODEL = @moe_models.MoeDecoderOnlyModel()
moe_models.MoeDecoderOnlyModel:
  module = %ARCHITECTURE
  vocabulary = %VOCABULARY
  optimizer_def = %OPTIMIZER
  feature_converter_cls = @seqio.PrefixLMFeatureConverter
  inputs_bidirectional_attention = True
"""
EXPERTS_CHOOSE = """
sparse_encoder/moe_layers.MoeLayer.router = @routing.ExpertsChooseMaskedRouter()
routing.ExpertsChooseMaskedRouter:
  router_weights = @routing.RouterWeights()
  jitter_noise = 0.0
  dtype = 'float32'
  ignore_padding_tokens = False
"""


def sparse(folder, name, bindings=""):
    """With two experts for each token."""
    (folder / f"{name}.gin").write_text(SPARSE + bindings)
    quintet(*e2e.switch(folder / name, 3, f"--gin_file={folder / name}.gin", "--gin.NUM_SELECTED_EXPERTS=2"))
    return folder / name


def flaxformer(folder, name, bindings, steps=2):
    """A model of flaxformer's modules, trained for two steps."""
    (folder / f"{name}.gin").write_text(FLAXFORMER + bindings)
    quintet("train", f"--gin_file={folder / name}.gin", f"--model_dir={folder / name}", f"--gin.TRAIN_STEPS={steps}", "--gin.WARMUP_STEPS=1",
            "--gin.BATCH_SIZE=2", "--gin.train_script.train.infer_eval_dataset_cfg=None", "--gin.train_script.train.eval_steps=1")
    return folder / name


def exported(model, file, *flags):
    quintet("export", model, f"--output={file}", "--format=onnx", *flags)
    return file


def generated(model, *flags, rows=None):
    """Of INPUTS, by Quintet, in one batch."""
    lines = quintet("generate", f"--model_dir={model}", "--format=json", "--max_decode_len=8", "--ids", *flags,
                    *(" ".join(map(str, ids)) for ids in rows or INPUTS)).out.splitlines()
    return [json.loads(line)["ids"] for line in lines]


def run_onnx(file, most, rows):
    """By NumPy; by onnxruntime, too, where QUINTET_ONNX_PYTHON has one."""
    programs = [(e2e.python_with("numpy"), ROOT / "tests/e2e/onnx_numpy.py")]
    if "QUINTET_ONNX_PYTHON" in os.environ:
        programs.append((os.environ["QUINTET_ONNX_PYTHON"], ROOT / "tests/oracles/run_onnx.py"))
    if programs[0][0] is None:
        e2e.skip("needs NumPy (Debian: python3-numpy)")
    for python, program in programs:
        done = subprocess.run([python, program, file, str(most)], input=json.dumps(rows), capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr[-2000:]
        yield json.loads(done.stdout)


def onnx_ids(file, most, rows, ends=(1,)):
    """Up to the first of the end tokens, behind which a row is 0."""
    found = []
    for ids in run_onnx(file, most, rows):
        lengths = [next((i + 1 for i, token in enumerate(row) if token in ends), len(row)) for row in ids]
        assert not any(any(row[length:]) for row, length in zip(ids, lengths)), ids
        found.append([row[:length] for row, length in zip(ids, lengths)])
    assert all(ids == found[0] for ids in found), found
    return found[0]


def test_the_recorded_ids(folder):
    """What transformers answers, of every kind of layer and of experts."""
    for kind in ("t5_1_1", "t5_1_0", "mt5", "umt5", "gelu_erf", "buckets", "tied_unscaled", "bfloat16", "switch", "switch_capacity", "switch_one_expert",
                 "switch_router_bias", "switch_steps", "switch_two_tables"):
        want = json.loads((KINDS / kind / "expected.json").read_text())
        ids = onnx_ids(exported(KINDS / kind, folder / f"{kind}.onnx"), want["new_tokens"], want["inputs"])
        assert ids == [answer["greedy"][0]["ids"] for answer in want["answers"]], kind


def test_the_end_tokens_and_the_length_of_a_directory(folder):
    """Of generation_config.json, in a graph as in a bundle; what a graph does not do is said."""
    directory = folder / "directory"
    shutil.copytree(KINDS / "t5_1_1", directory)
    prompts = [[7, 1], [5, 9, 1]]

    def answers(model):
        lines = quintet("generate", f"--model_dir={model}", "--format=json", "--ids", *(" ".join(map(str, ids)) for ids in prompts)).out.splitlines()
        return [json.loads(line)["ids"] for line in lines]

    free = answers(directory)
    second = free[0][1]
    assert second != 1 and len(free[0]) > 2, free
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, second], "max_new_tokens": 5}))
    want = answers(directory)
    assert want[0] == free[0][:2] and max(map(len, want)) <= 5, (want, free)
    quintet("export", f"--model_dir={directory}", f"--output={folder / 'bundle.safetensors'}")
    assert answers(folder / "bundle.safetensors") == want
    for model in (directory, folder / "bundle.safetensors"):
        file = folder / f"{pathlib.Path(model).stem}.onnx"
        assert onnx_ids(exported(model, file), 5, prompts, (1, second)) == want, model
    (directory / "generation_config.json").write_text(json.dumps({"suppress_tokens": [free[0][0]], "num_beams": 2}))
    said = quintet("export", f"--model_dir={directory}", "--format=onnx", f"--output={folder / 'warned.onnx'}").err
    assert "num_beams has no effect in an ONNX graph" in said and "suppress_tokens" in said, said


def test_no_step_asked_for_is_one(folder):
    rows = run_onnx(exported(KINDS / "t5_1_1", folder / "one.onnx"), 0, [[7, 1]])
    assert all(len(ids[0]) == 1 for ids in rows)


def test_an_encoder_gives_its_output(folder):
    inputs = [[30, 65, 45, 1], [16, 1]]
    want = [json.loads(line)["embeddings"] for line in quintet(
        "generate", f"--model_dir={KINDS / 'encoder'}", "--ids", "--embed=tokens", *(" ".join(map(str, ids)) for ids in inputs)).out.splitlines()]
    for found in run_onnx(exported(KINDS / "encoder", folder / "encoder.onnx"), 0, inputs):
        for tokens, ids, rows in zip(found, inputs, want):
            assert all(abs(a - b) < 1e-4 for x, y in zip(tokens, rows) for a, b in zip(x, y)) and len(rows) == len(ids), (tokens, rows)


def test_the_ids_of_generate(folder):
    """Weights as they are trained and rounded, of networks that transformers does not have."""
    quintet(*tiny(folder / "run", 4))
    models = [folder / "run", *(flaxformer(folder, name, bindings) for name, bindings in {
        "multi_query": MULTI_QUERY, "rotary": ROTARY, "no_biases": ROTARY + NO_BIASES, "causal": DECODER, "prefix": DECODER + BOTH_WAYS,
        "parallel": DECODER + PARALLEL + BOTH_WAYS, "parallel_encoder": PARALLEL + PARALLEL.replace("Decoder", "Encoder"), "rotary_decoder": DECODER + ROTARY.splitlines()[1] + "\n",
        "fused": DECODER + FUSED}.items())]
    models += [sparse(folder, "experts"), sparse(folder, "experts_decoder", SPARSE_DECODER), sparse(folder, "experts_parallel", SPARSE_PARALLEL)]
    for model in models:
        want = generated(model)
        assert onnx_ids(exported(model, folder / f"{model.name}.onnx"), 8, INPUTS) == want, model
    rounded = exported(folder / "run", folder / "rounded.onnx", "--dtype=bfloat16")
    assert rounded.stat().st_size < 0.7 * (folder / "run.onnx").stat().st_size
    quintet("export", folder / "run", f"--output={folder}/rounded.safetensors", "--dtype=bfloat16")
    assert exported(folder / "rounded.safetensors", folder / "again.onnx", "--name=run").read_bytes() == rounded.read_bytes()


def test_experts_that_choose(folder):
    """Among the tokens of a batch, padded with rows or columns to a multiple of the experts, in groups."""
    batches = ([[5, 1], [7, 1], [9, 1]], INPUTS[:2], INPUTS[:3], [*INPUTS[:3], *([one, 20, 21, 22, 23, 24, 1] for one in range(9, 13))])
    for name, bindings in (("whole", ""), ("groups", "GROUP_SIZE = 5\nmoe_layers.MoeLayer.min_expert_capacity = 1\n"),
                           ("padding", "routing.ExpertsChooseMaskedRouter.ignore_padding_tokens = True\nEVAL_EXPERT_CAPACITY_FACTOR = 0.5\n"
                                       "moe_layers.MoeLayer.min_expert_capacity = 1\n")):
        model = sparse(folder, name, EXPERTS_CHOOSE + bindings)
        file = exported(model, folder / f"{name}.onnx")
        for rows in batches:
            assert onnx_ids(file, 8, rows) == generated(model, f"--batch_size={len(rows)}", rows=rows), (name, rows)


def test_an_adapter_is_merged(folder):
    model, adapter = KINDS / "byt5", f"--adapter={KINDS.parent / 'lora' / 'byt5'}"
    want = generated(model, adapter)
    assert onnx_ids(exported(model, folder / "merged.onnx", adapter), 8, INPUTS) == want != generated(model), want


def test_weights_in_fewer_bits(folder):
    """A product's weights are integers times a scale a column in both, its activations float32 in both."""
    quintet(*tiny(folder / "run", 4))
    quintet("export", KINDS / "t5_1_0", f"--output={folder}/tied.safetensors", "--quantize=int8")
    for model in (folder / "run", KINDS / "t5_1_0", sparse(folder, "experts"), sparse(folder, "experts_parallel", SPARSE_PARALLEL), flaxformer(folder, "fused", DECODER + FUSED)):
        whole, small = exported(model, folder / f"{model.name}.onnx"), exported(model, folder / f"{model.name}_small.onnx", "--quantize=int8")
        assert onnx_ids(small, 8, INPUTS) == generated(model, "--quantize=int8"), model
        assert small.stat().st_size < 0.7 * whole.stat().st_size, model
    assert exported(folder / "tied.safetensors", folder / "tied.onnx", "--name=t5_1_0").read_bytes() == (
        folder / "t5_1_0_small.onnx").read_bytes()
    assert onnx_ids(exported(folder / "run", folder / "bf16.onnx", "--quantize=bf16"), 8, INPUTS) == generated(folder / "run", "--quantize=bf16")


def test_weights_in_a_file_of_their_own(folder):
    """As of models that a message of 2 GiB could not hold."""
    quintet(*tiny(folder / "run", 4))
    whole, small = exported(folder / "run", folder / "whole.onnx"), exported(folder / "run", folder / "small.onnx", "--external_data")
    data = folder / "small.onnx.data"
    assert small.stat().st_size < 0.6 * whole.stat().st_size and data.stat().st_size > 4 * 384 * 16, (small.stat(), data.stat())
    assert onnx_ids(small, 8, INPUTS) == onnx_ids(whole, 8, INPUTS)
    (folder / "moved").mkdir()
    for file in (small, data):
        file.rename(folder / "moved" / file.name)
    assert onnx_ids(folder / "moved" / "small.onnx", 8, INPUTS) == onnx_ids(whole, 8, INPUTS)
    (folder / "again.onnx.data").write_text("mine")
    done = quintet("export", folder / "run", f"--output={folder}/again.onnx", "--format=onnx", "--external_data", expect=2)
    assert "again.onnx.data" in done.err and (folder / "again.onnx.data").read_text() == "mine" and not (folder / "again.onnx").exists(), done


def test_what_has_no_graph_is_refused_by_name(folder):
    quintet(*tiny(folder / "run", 4))
    quintet("export", folder / "run", f"--output={folder}/fp8.safetensors", "--quantize=fp8")
    for source, flags, word in ((sparse(folder, "choose", EXPERTS_CHOOSE), ["--gin.moe_layers.MoeLayer.strict_group_size=True"], "strict_group_size"),
                                (folder / "run", ["--quantize=fp8"], "--quantize=fp8"), (folder / "fp8.safetensors", [], "weights in fp8"),
                                (folder / "run", ["--quantize=int8_dynamic"], "--quantize=int8_dynamic"),
                                (folder / "run", ["--format=bundle", "--external_data"], "--external_data"),
                                (folder / "run", ["--quantize=int8", "--dtype=bfloat16"], "--dtype=bfloat16")):
        done = quintet("export", source, f"--output={folder}/no.onnx", *([] if "--format=bundle" in flags else ["--format=onnx"]), *flags, expect=2)
        assert word in done.err and not list(folder.glob("*no.onnx*")), done


e2e.run(globals())
