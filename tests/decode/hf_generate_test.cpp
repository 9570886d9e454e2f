// transformers' generate, scoring and encoder on tiny models: every case of fixtures/hf_generate.

#include <numeric>

#include "models/decoding/cpu/transformer_decoder.h"
#include "models/decoding/encoding.h"
#include "models/decoding/request.h"
#include "models/decoding/scoring.h"
#include "tests/decode/hf_fixture.h"

namespace quintet::testing {
namespace {

using namespace decoding;

std::filesystem::path hf_file(const std::string& name) {
  return fixture_root() / "hf_generate" / name;
}

TokenList tokens_of(const Json& json) {
  if (!json.is_array()) return {static_cast<int32_t>(json.as_int())};
  TokenList tokens;
  for (int64_t id : json.as_ints()) tokens.push_back(static_cast<int32_t>(id));
  return tokens;
}

std::span<const int32_t> row_of(const HostArray& array, int64_t row) {
  const auto length = static_cast<size_t>(array.shape[1]);
  return array.as<int32_t>().subspan(static_cast<size_t>(row) * length, length);
}

/// transformers' arguments for one row; an argument we do not know fails the test.
DecodingRequest request_of(const Json& args, const HostArrays& inputs,
                           std::span<const int32_t> input_ids, int64_t row) {
  DecodingRequest r;
  r.inputs.assign(input_ids.begin(), input_ids.end());
  if (args.has("decoder_input_ids")) {
    const auto given = row_of(inputs.at(args["decoder_input_ids"].as_string()), row);
    if (given[0] == 0) r.prompt.clear();
    r.prompt.insert(r.prompt.end(), given.begin(), given.end());
  }
  const auto prompt = std::ssize(r.prompt);
  constexpr int64_t kDefaultNewTokens = 20;
  r.rules.max_new_tokens = kDefaultNewTokens;
  bool samples = false;
  for (const auto& [name, value] : args.members()) {
    const auto number = [&v = value] { return static_cast<float>(v.as_double()); };
    if (name == "decoder_input_ids" || name == "attention_mask") continue;
    if (name == "max_new_tokens")
      r.rules.max_new_tokens = value.as_int();
    else if (name == "max_length")
      r.rules.max_new_tokens = value.as_int() - prompt;
    else if (name == "min_new_tokens")
      r.rules.min_new_tokens = value.as_int();
    else if (name == "min_length")
      r.rules.min_new_tokens = std::max<int64_t>(0, value.as_int() - prompt);
    else if (name == "do_sample")
      samples = value.as_bool();
    else if (name == "top_k")
      r.sampling.top_k = value.as_int();
    else if (name == "top_p")
      r.sampling.top_p = number();
    else if (name == "temperature")
      r.sampling.temperature = number();
    else if (name == "eos_token_id")
      r.rules.eos_ids = tokens_of(value);
    else if (name == "repetition_penalty")
      r.rules.repetition_penalty = number();
    else if (name == "encoder_repetition_penalty")
      r.rules.encoder_repetition_penalty = number();
    else if (name == "no_repeat_ngram_size")
      r.rules.no_repeat_ngram_size = value.as_int();
    else if (name == "encoder_no_repeat_ngram_size")
      r.rules.encoder_no_repeat_ngram_size = value.as_int();
    else if (name == "bad_words_ids")
      for (const Json& word : value.items()) r.rules.bad_words.push_back(tokens_of(word));
    else if (name == "forced_bos_token_id") {
      if (prompt == 1) r.rules.prefix = tokens_of(value);
    } else if (name == "forced_eos_token_id")
      r.rules.forced_eos = true;
    else if (name == "suppress_tokens")
      r.rules.suppress = tokens_of(value);
    else if (name == "begin_suppress_tokens")
      r.rules.begin_suppress = tokens_of(value);
    else if (name == "exponential_decay_length_penalty")
      r.rules.decay_length_penalty = {value[0].as_int(), static_cast<float>(value[1].as_double())};
    else if (name == "sequence_bias")
      for (const Json& b : value.items())
        r.rules.sequence_bias.emplace_back(tokens_of(b[0]), static_cast<float>(b[1].as_double()));
    else if (name == "num_beams")
      r.num_beams = value.as_int();
    else if (name == "num_return_sequences")
      r.num_return_sequences = value.as_int();
    else if (name == "length_penalty")
      r.length_penalty = number();
    else if (name == "early_stopping")
      r.early_stopping = value.is_string() ? EarlyStopping::never
                         : value.as_bool() ? EarlyStopping::yes
                                           : EarlyStopping::no;
    else if (name == "renormalize_logits")
      r.renormalize_logits = value.as_bool();
    else
      ADD_FAILURE() << "argument " << name << " is not known";
  }
  if (!samples)
    r.sampling.temperature = 0;
  else if (r.sampling.temperature == 0)
    r.sampling.temperature = 1;
  return r;
}

void expect_case(const std::string& name, const Json& c, const PackedNetwork& network,
                 const HostArrays& inputs, const HostArrays& outputs) {
  const Json args = c["args"];
  const std::string batch = c["batch"].as_string();
  const HostArray& ids = inputs.at(batch + "/input_ids");
  const bool masked = !args.has("attention_mask");
  std::vector<DecodingRequest> requests;
  // Without a mask all tokens count: transformers takes padding 0 for no padding token at all.
  const std::vector<int32_t> ones(ids.as<int32_t>().size(), 1);
  int64_t rows = 1, longest = 0;
  for (int64_t i = 0; i < ids.shape[0]; ++i) {
    requests.push_back(request_of(args, inputs, row_of(ids, i), i));
    rows = std::max(rows, rows_of(requests.back()));
    longest = std::max<int64_t>(
        longest, std::ssize(requests.back().prompt) + requests.back().rules.max_new_tokens);
  }
  TransformerDecoder decoder(network);
  decoder.begin(
      ids.as<int32_t>(), ids.shape[0], ids.shape[1], {.num_decodes = rows, .max_length = longest},
      masked ? inputs.at(batch + "/attention_mask").as<int32_t>() : std::span<const int32_t>(ones));
  const auto results = generate(decoder, requests, rows);

  const HostArray& want = outputs.at(name + "/sequences");
  const HostArray& steps = outputs.at(name + "/transition_scores");
  const auto scores = outputs.find(name + "/sequences_scores");
  const double tolerance = c["score_atol"].as_double();
  const int64_t made = steps.shape[1];
  int64_t row = 0;
  for (size_t i = 0; i < results.size(); ++i)
    for (const Hypothesis& hypothesis : results[i]) {
      SCOPED_TRACE(::testing::Message() << "row " << row);
      TokenList sequence = requests[i].prompt;
      const TokenList generated = hypothesis.ids();
      sequence.insert(sequence.end(), generated.begin(), generated.end());
      sequence.resize(static_cast<size_t>(want.shape[1]), 0);
      const auto expected = row_of(want, row);
      ASSERT_EQ(sequence, TokenList(expected.begin(), expected.end()));
      for (int64_t t = 0; t < made; ++t)
        EXPECT_NEAR(
            t < std::ssize(generated) ? hypothesis.tokens[static_cast<size_t>(t)].log_prob : 0,
            steps.as<float>()[static_cast<size_t>(row * made + t)], tolerance)
            << "token " << t;
      if (scores != outputs.end()) {
        EXPECT_NEAR(hypothesis.score, scores->second.as<float>()[static_cast<size_t>(row)],
                    tolerance);
      }
      ++row;
    }
  EXPECT_EQ(row, want.shape[0]);
}

TEST(HfGenerate, TokensAreEqualAndScoresAgree) {
  if (!std::filesystem::exists(hf_file("cases.json")))
    GTEST_SKIP() << "no " << hf_file("cases.json");
  const Json meta = Json::read(hf_file("cases.json"));
  const HostArrays inputs = read_safetensors(hf_file("inputs.safetensors"));
  const HostArrays outputs = read_safetensors(hf_file("outputs.safetensors"));
  std::map<std::string, PackedNetwork> networks;
  for (const auto& [name, c] : meta["cases"].members()) {
    SCOPED_TRACE(name);
    const std::string model = c["model"].as_string();
    if (!networks.contains(model)) networks.emplace(model, hf_network(hf_file(model)));
    expect_case(name, c, networks.at(model), inputs, outputs);
  }
  EXPECT_GT(networks.size(), 0u);
}

/// What transformers computes of fixtures' `model` without searching, by the fixture's names.
std::map<std::string, std::vector<float>> forward(const PackedNetwork& network,
                                                  const HostArrays& inputs) {
  std::map<std::string, std::vector<float>> out;
  const auto e = static_cast<size_t>(network.spec().emb_dim());
  TransformerDecoder decoder(network);
  for (const auto& [name, ids] : inputs) {
    const size_t end = name.find("/input_ids");
    if (end == std::string::npos) continue;
    const std::string batch = name.substr(0, end);
    const auto mask = inputs.at(batch + "/attention_mask").as<int32_t>();
    decoder.begin(ids.as<int32_t>(), ids.shape[0], ids.shape[1],
                  {.num_decodes = 1, .max_length = 1}, mask);
    std::vector<float>& hidden = out[batch + "/encoder_last_hidden_state"];
    std::vector<float>& pooled = out[batch + "/mean_pooled"];
    for (int64_t i = 0; i < ids.shape[0]; ++i) {
      const auto encoded = decoder.encoded(i);
      auto next = encoded.begin();
      for (int64_t t = 0; t < ids.shape[1]; ++t)
        if (mask[static_cast<size_t>(i * ids.shape[1] + t)] != 0) {
          hidden.insert(hidden.end(), next, next + static_cast<std::ptrdiff_t>(e));
          next += static_cast<std::ptrdiff_t>(e);
        } else {
          hidden.resize(hidden.size() + e, 0);
        }
      const auto mean = mean_of_rows(encoded, static_cast<int64_t>(e));
      pooled.insert(pooled.end(), mean.begin(), mean.end());
    }
  }
  const HostArray& ids = inputs.at("mixed/input_ids");
  const HostArray& labels = inputs.at("scoring/labels");
  std::vector<TokenList> targets;
  for (int64_t i = 0; i < labels.shape[0]; ++i) {
    targets.emplace_back();
    for (int32_t label : row_of(labels, i))
      if (label >= 0) targets.back().push_back(label);
  }
  decoder.begin(ids.as<int32_t>(), ids.shape[0], ids.shape[1],
                {.num_decodes = 1, .max_length = labels.shape[1]},
                inputs.at("mixed/attention_mask").as<int32_t>());
  double total = 0, count = 0;
  std::vector<std::unique_ptr<RequestDecoder>> scored;
  for (const TokenList& tokens : targets)
    scored.push_back(start_scoring(tokens, decoder.vocab_size()));
  run(decoder, scored, 1);
  for (const auto& one : scored) {
    std::vector<float> row;
    const Hypothesis scored_one = one->results().front();
    for (const TokenChoice& choice : scored_one.tokens) row.push_back(choice.log_prob);
    const float sum = std::accumulate(row.begin(), row.end(), 0.0f);
    out["scoring/sequence_log_probs"].push_back(sum);
    out["scoring/mean_token_log_prob"].push_back(sum / static_cast<float>(row.size()));
    total += static_cast<double>(sum);
    count += static_cast<double>(row.size());
    row.resize(static_cast<size_t>(labels.shape[1]), 0);
    auto& all = out["scoring/token_log_probs"];
    all.insert(all.end(), row.begin(), row.end());
  }
  out["scoring/loss"] = {static_cast<float>(-total / count)};
  return out;
}

TEST(HfGenerate, EncoderPoolingAndScoresAgree) {
  if (!std::filesystem::exists(hf_file("cases.json")))
    GTEST_SKIP() << "no " << hf_file("cases.json");
  const HostArrays inputs = read_safetensors(hf_file("inputs.safetensors"));
  const HostArrays wanted = read_safetensors(hf_file("forward.safetensors"));
  const Json tolerances = Json::read(hf_file("cases.json"))["forward_atol"];
  std::map<std::string, std::map<std::string, std::vector<float>>> models;
  for (const auto& [name, want] : wanted) {
    SCOPED_TRACE(name);
    const size_t slash = name.find('/');
    const std::string model = name.substr(0, slash);
    if (!models.contains(model)) models[model] = forward(hf_network(hf_file(model)), inputs);
    const auto& got = models[model].at(name.substr(slash + 1));
    EXPECT_TRUE(near_array(std::span<const float>(got), want.as<float>(),
                           {tolerances[name].as_double(), 0}));
  }
  EXPECT_GT(models.size(), 0u);
}

}  // namespace
}  // namespace quintet::testing
