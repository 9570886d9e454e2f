// Models from one format to another and back: Hugging Face directories of every kind
// (tests/oracles/gen_huggingface.py) come back bit for bit and compute what they did.

#include <nlohmann/json.hpp>

#include "apps/convert/conversion.h"
#include "apps/huggingface/config_of.h"
#include "apps/huggingface/tokenizer_files.h"
#include "apps/model/trained_model.h"
#include "checkpoint/huggingface/huggingface_reader.h"
#include "checkpoint/open/open_checkpoint.h"
#include "models/network.h"
#include "runtime/base/files/posix_file.h"
#include "tests/checkpoint/scratch.h"
#include "tests/harness/fixtures.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::fixture_folders;
using testing::near_array;
using testing::Scratch;

void convert(const fs::path& from, const fs::path& to, const std::string& format,
             const std::string& dtype = "", const std::string& shard_size = "") {
  ConversionFlags flags;
  flags.source = from.string();
  flags.destination = to.string();
  flags.format = format;
  flags.dtype = dtype;
  flags.shard_size = shard_size;
  flags.check = dtype.empty() && format != "hf";
  convert_model(flags, {});
}

HostArrays contents_of(const CheckpointReader& reader) {
  HostArrays arrays;
  for (const auto& [name, tensor] : reader.tensors()) {
    HostArray& array = arrays[name] = HostArray(tensor.dtype, tensor.shape);
    reader.read({name, std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape},
                array.bytes.data());
  }
  return arrays;
}

HostArrays contents_of(const fs::path& folder) { return contents_of(*open_checkpoint(folder)); }

/// Of Hugging Face directories that have a decoder.
std::vector<fs::path> generators() {
  std::vector<fs::path> folders;
  for (const auto& folder : fixture_folders("huggingface"))
    if (!huggingface::read_config(folder).encoder_only()) folders.push_back(folder);
  return folders;
}

TEST(Convert, HuggingFaceToNativeAndBackBitForBit) {
  ASSERT_FALSE(generators().empty());
  for (const auto& folder : generators()) {
    SCOPED_TRACE(folder);
    const Scratch scratch;
    convert(folder, scratch.path() / "native", "native");
    convert(scratch.path() / "native", scratch.path() / "hf", "hf");
    const HostArrays before = contents_of(folder);
    EXPECT_TRUE(
        testing::same_state(contents_of(scratch.path() / "native" / "checkpoint_0"), before));
    EXPECT_TRUE(testing::same_state(contents_of(scratch.path() / "hf"), before));
    const huggingface::Config was = huggingface::read_config(folder);
    const huggingface::Config is = huggingface::read_config(scratch.path() / "hf");
    EXPECT_EQ(is.max_distance, was.max_distance);
    EXPECT_EQ(is.dropout_rate, was.dropout_rate);
    EXPECT_EQ(is.eos_token_ids, was.eos_token_ids);
    EXPECT_EQ(is.is_switch(), was.is_switch());
    EXPECT_EQ(is.bias_in_each_layer(), was.bias_in_each_layer());
    EXPECT_EQ(is.activation, was.activation);
  }
}

TEST(Convert, WhatIsWrittenComputesWhatTransformersDid) {
  for (const auto& folder : generators()) {
    SCOPED_TRACE(folder);
    const Scratch scratch;
    convert(folder, scratch.path() / "native", "native");
    convert(scratch.path() / "native", scratch.path() / "hf", "hf");
    const Json expected = Json::read(folder / "expected.json");
    const HostArrays arrays = read_safetensors(folder / "expected.safetensors");
    const TrainedModel trained = open_trained_model(scratch.path() / "hf");
    const auto row = [](const std::vector<int64_t>& ids) {
      HostArray array(DType::i32, {1, std::ssize(ids)});
      std::copy(ids.begin(), ids.end(), array.as<int32_t>().begin());
      return array;
    };
    const auto target = expected["targets"][0].as_ints();
    std::vector<int64_t> shifted{0};
    shifted.insert(shifted.end(), target.begin(), target.end() - 1);
    const HostArray logits =
        trained.model->model
            ->logits({{"encoder_input_tokens", row(expected["inputs"][0].as_ints())},
                      {"decoder_input_tokens", row(shifted)},
                      {"decoder_target_tokens", row(target)}})
            .to_host();
    EXPECT_TRUE(near_array(logits.as<float>(), arrays.at("logits_0").as<float>(),
                           {0, expected["logits_rtol"].as_double()}));
  }
}

TEST(Convert, FilesOfWeightsAreNoLargerThanRequested) {
  for (const auto& folder : fixture_folders("huggingface")) {
    SCOPED_TRACE(folder);
    const Scratch scratch;
    convert(folder, scratch.path() / "hf", "hf", "", "20KB");
    EXPECT_TRUE(testing::same_state(contents_of(scratch.path() / "hf"), contents_of(folder)));
    int files = 0;
    for (const std::string& name : names_in(scratch.path() / "hf"))
      if (name.ends_with(".safetensors")) {
        ++files;
        int64_t bytes = 0, tensors = 0;
        for (const auto& [tensor, array] : read_safetensors(scratch.path() / "hf" / name)) {
          bytes += std::ssize(array.bytes);
          ++tensors;
        }
        EXPECT_TRUE(bytes <= 20'000 || tensors == 1) << name << " has " << bytes;
      }
    EXPECT_GT(files, 1);
    EXPECT_TRUE(is_there(scratch.path() / "hf" / "model.safetensors.index.json"));
  }
}

TEST(Convert, EveryByteOfTheWeightsIsChecked) {
  const Scratch scratch;
  convert(generators().front(), scratch.path() / "hf", "hf");
  const fs::path file = scratch.path() / "hf" / "model.safetensors";
  const std::string bytes = read_file(file);
  for (size_t at = 8; at < bytes.size(); at += bytes.size() / 61) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    testing::write_bytes(file, changed);
    EXPECT_THROW(read_safetensors(file), Error) << at;
  }
}

TEST(Convert, DtypesAreThoseRequested) {
  const Scratch scratch;
  const fs::path from = generators().front();
  for (const char* dtype : {"bfloat16", "float16", "float32"}) {
    const fs::path to = scratch.path() / dtype;
    convert(from, to, "hf", dtype);
    for (const auto& [name, tensor] : open_checkpoint(to)->tensors())
      EXPECT_EQ(name_of(tensor.dtype), dtype) << name;
    EXPECT_EQ(Json::read(to / "config.json")["torch_dtype"].as_string(), dtype);
  }
}

/// What huggingface_config says of a T5Config that `change` has changed.
template <typename Change>
std::string refusal(const Change& change) {
  T5Config config;
  config.vocab_size = 96;
  change(config);
  return error_of(ExitCode::kUsage, [&] { huggingface_config(spec_of(config)); });
}

TEST(Convert, WhatHuggingFaceHasNoPlaceForIsNamed) {
  const auto names = [](const std::string& message, const std::string& what) {
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  names(refusal([](T5Config& c) { c.scale_attn_logits = true; }), "scale_attn_logits = True");
  names(refusal([](T5Config& c) { c.encoder.dense_layers.form = LayerForm::parallel; }),
        "encoder/layers_0 is parallel");
  names(refusal([](T5Config& c) { c.decoder.dense_layers.form = LayerForm::parallel; }),
        "decoder/layers_0 is parallel");
  names(refusal([](T5Config& c) {
          c.mlp_activations = {"gelu", "gelu"};
        }),
        "mlp_activations = (gelu, gelu)");
  const auto experts = [](T5Config& c) {
    for (SparseStack* stack : {&c.encoder.sparse, &c.decoder.sparse}) {
      stack->num_sparse_layers = 3;
      stack->moe.num_experts = 4;
      stack->moe.mlp_dim = c.mlp_dim;
    }
  };
  T5Config fits;
  fits.vocab_size = 96;
  experts(fits);
  EXPECT_EQ(huggingface_config(spec_of(fits)).model_type, "switch_transformers");
  // A kind that no layer has is none of the model's.
  for (StackConfig* stack : {&fits.encoder, &fits.decoder}) {
    stack->sparse.num_sparse_layers = 6;
    stack->dense_layers.form = LayerForm::parallel;
  }
  EXPECT_EQ(huggingface_config(spec_of(fits)).model_type, "switch_transformers");
  const auto refused_experts = [&](const auto& change) {
    return refusal([&](T5Config& c) {
      experts(c);
      change(c);
    });
  };
  names(refused_experts([](T5Config& c) { c.decoder.sparse.moe.num_experts = 8; }),
        "encoder and decoder have different num_experts");
  names(refused_experts([](T5Config& c) { c.decoder.sparse_layers.form = LayerForm::parallel; }),
        "decoder/layers_1 is parallel");
  names(refused_experts([](T5Config& c) { c.encoder.sparse_layers.extra_mlp = true; }),
        "encoder/layers_1 is followed by a dense MLP");
  names(refused_experts([](T5Config& c) { c.encoder.sparse.layout = LayerLayout::bottom; }),
        "in the second of every so many");
  names(refused_experts([](T5Config& c) { c.decoder.sparse.moe.router.num_selected_experts = 2; }),
        "a token chooses one expert");
  names(refused_experts([](T5Config& c) { c.decoder.sparse.moe.mlp_dim = 7; }), "another mlp_dim");
  names(refused_experts([](T5Config& c) { c.shared_relative_position_bias = false; }),
        "relative position bias in each layer");
  TransformerConfig decoder_only;
  decoder_only.vocab_size = 96;
  names(error_of(ExitCode::kUsage, [&] { huggingface_config(spec_of(decoder_only)); }),
        "it has no encoder");
}

TEST(Convert, VocabulariesThatATokenizerCannotBeAreNamed) {
  const std::string model =
      (testing::fixture_root() / "seqio/vocab/unigram_nmt_nfkc.model").string();
  const data::SentencePieceVocabulary falling(model, 5), rising(model, 5, false);
  const TextFiles files = huggingface_files(&falling, 1);
  EXPECT_EQ(files.at("spiece.model"), read_file(model));
  EXPECT_NE(files.at("special_tokens_map.json").find("<extra_id_4>"), std::string::npos);
  EXPECT_NE(error_of(ExitCode::kUsage, [&] { huggingface_files(&rising, 1); })
                .find("reverse_extra_ids = False"),
            std::string::npos);
  const data::PassThroughVocabulary numbers(96);
  EXPECT_NE(error_of(ExitCode::kUsage, [&] { huggingface_files(&numbers, 1); })
                .find("a SentencePiece or a byte vocabulary"),
            std::string::npos);
}

TEST(Convert, SizesAreReadWithTheirUnits) {
  EXPECT_EQ(bytes_of_size("--shard_size", "5GB"), 5'000'000'000);
  EXPECT_EQ(bytes_of_size("--shard_size", "2GiB"), int64_t{2} << 30);
  EXPECT_EQ(bytes_of_size("--shard_size", "1.5MB"), 1'500'000);
  EXPECT_EQ(bytes_of_size("--shard_size", "123"), 123);
  for (const char* bad : {"", "GB", "5gb", "-1GB", "0", "5GB ", "1e30", "nan"})
    EXPECT_NE(error_of(ExitCode::kUsage, [&] { bytes_of_size("--shard_size", bad); })
                  .find("expected a size"),
              std::string::npos);
}

}  // namespace
}  // namespace quintet
