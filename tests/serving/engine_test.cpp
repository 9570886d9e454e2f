// What the engine answers: the bits that generate() answers, whatever else runs (batch invariance).

#include "models/decoding/cpu/transformer_decoder.h"
#include "tests/decode/hf_fixture.h"
#include "tests/harness/threads.h"
#include "tests/serving/request_cases.h"

namespace quintet::testing {
namespace {

struct Kind {
  std::string network, dtype;
};
class Mixes : public ::testing::TestWithParam<Kind> {};

TEST_P(Mixes, EveryAnswerHasTheBitsItHasAlone) {
  if (on_cpu() && GetParam().dtype != "float32") GTEST_SKIP() << "the CPU computes in float32";
  const auto network = tiny_network(GetParam().network, GetParam().dtype);
  const int64_t vocab = network->spec().vocab_size;
  // The emulator takes many seconds for each.
  const uint32_t seeds = on_cpu() || GetParam().network == "encdec" ? 2 : 1;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    Asking asking(seed, *network);
    std::vector<RequestCase> all;
    for (int i = 0; i < (on_cpu() ? 24 : 6); ++i)  // some with the inputs of others
      all.push_back(i % 5 == 4 ? all[static_cast<size_t>(asking.number(i))] : asking.ask());
    std::vector<Ended> alone(all.size()), mixed(all.size());
    // A GPU's products have the shape of the largest batch: few rows take kernels of ours, more the
    // library's.
    const int64_t rows = on_cpu() ? 6 + asking.number(20) : seed == 0 ? 8 : 14;
    for (size_t i = 0; i < all.size(); ++i) {
      RunningEngine one(*network, {.max_rows = on_cpu() ? 64 : rows});
      Job job = all[i].job(vocab);
      watch(job, alone[i]);
      one.engine.submit(std::move(job));
    }
    {
      RunningEngine many(*network, {.max_rows = rows,
                                    .max_encoder_tokens = 1 + asking.number(40),
                                    .page_tokens = 1 + asking.number(6)});
      std::vector<uint64_t> others;
      for (size_t i = 0; i < all.size(); ++i) {
        Job job = all[i].job(vocab);
        watch(job, mixed[i]);
        many.engine.submit(std::move(job));
        others.push_back(many.engine.submit(asking.ask().job(vocab)));
        // delay: requests come between some of the steps
        if (asking.number(2) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (asking.number(3) == 0)
          many.engine.cancel(others[static_cast<size_t>(asking.number(std::ssize(others)))]);
      }
    }
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same_bits(alone[i], mixed[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, Mixes,
    ::testing::Values(Kind{"encdec", "float32"}, Kind{"decoder_only", "float32"},
                      Kind{"encdec", "bfloat16"}, Kind{"int8_encdec", "float32"},
                      Kind{"int8_encdec", "bfloat16"}, Kind{"sparse_encdec", "float32"},
                      Kind{"sparse_decoder_only", "float32"},
                      Kind{"parallel_decoder_only", "float32"}, Kind{"parallel_encdec", "float32"},
                      Kind{"fused_decoder_only", "float32"}, Kind{"kv_int8_encdec", "float32"},
                      Kind{"kv_fp8_encdec", "bfloat16"}, Kind{"kv_fp8_decoder_only", "float32"}),
    [](const auto& named) { return named.param.network + "_" + named.param.dtype; });

void expect_answers_of_generate(const std::string& kind) {
  const auto network = tiny_network(kind);
  const int64_t vocab = network->spec().vocab_size;
  Asking asking(9, *network);
  for (int i = 0; i < (on_cpu() ? 20 : 8); ++i) {
    RequestCase request_case = asking.ask();
    if (i == 0)  // more beams than a GPU's kernel takes at once; a 0 that is no padding
      request_case = {.inputs = {5, 0, 7},
                      .request = {.rules = {.max_new_tokens = 9}, .num_beams = 6},
                      .targets = {}};
    if (!request_case.targets.empty() || request_case.encoded) continue;
    Ended ended;
    {
      RunningEngine one(*network, {.max_rows = 10, .page_tokens = 3});
      Job job = request_case.job(vocab);
      watch(job, ended);
      one.engine.submit(std::move(job));
    }
    decoding::TransformerDecoder decoder(*network->packed);
    decoder.begin(request_case.inputs, 1, std::ssize(request_case.inputs),
                  {.num_decodes = rows_of(request_case.request),
                   .max_length = request_case.request.rules.max_new_tokens,
                   .type = network->cache_type},
                  TokenList(request_case.inputs.size(), 1));
    const auto want =
        generate(decoder, std::span(&request_case.request, 1), rows_of(request_case.request))
            .front();
    ASSERT_EQ(ended.results.size(), want.size());
    for (size_t r = 0; r < want.size(); ++r) {
      EXPECT_EQ(ended.results[r].ids(), want[r].ids());
      if (on_cpu())
        EXPECT_EQ(ended.results[r].score, want[r].score);
      else
        EXPECT_NEAR(ended.results[r].score, want[r].score, 1e-4);  // fixtures README, decode/
    }
  }
}

TEST(Engine, AnswersAsGenerateDoes) { expect_answers_of_generate("encdec"); }
TEST(Engine, AnswersAsGenerateDoesWithABiasInEveryLayer) {
  expect_answers_of_generate("umt5_encdec");
}
TEST(Engine, AnswersAsGenerateDoesWithTheKeysOfOneHead) {
  expect_answers_of_generate("multi_query_encdec");
  // A token has a key and a value of each head, or of one.
  const auto all = tiny_network("sparse_encdec"), one = tiny_network("multi_query_encdec");
  EXPECT_EQ(page_bytes(*all, 4), page_bytes(*one, 4) * all->spec().decoder.layer.num_heads);
}
TEST(Engine, AnswersAsGenerateDoesWithRotaryEmbeddings) {
  expect_answers_of_generate("rotary_encdec");
}

TEST(Engine, AnswersAsGenerateDoesWithCachesInBytes) {
  for (const char* kind : {"kv_int8_encdec", "kv_fp8_multi_query_encdec", "kv_int8_rotary_encdec"})
    expect_answers_of_generate(kind);
}

TEST(Engine, AnswersAsAloneBesideAnotherOnItsThread) {
  const auto network = tiny_network("encdec");
  Asking asking(4, *network);
  std::vector<RequestCase> all;
  for (int i = 0; i < 6; ++i) all.push_back(asking.ask());
  std::vector<Ended> alone(all.size()), beside(all.size());
  const auto submit = [&](Engine& engine, size_t i, Ended& ended) {
    Job job = all[i].job(network->spec().vocab_size);
    watch(job, ended);
    engine.submit(std::move(job));
  };
  for (size_t i = 0; i < all.size(); ++i) {
    RunningEngine one(*network, {.max_rows = 10, .page_tokens = 3});
    submit(one.engine, i, alone[i]);
  }
  std::string order;
  EngineOptions options{.max_rows = 10,
                        .page_tokens = 3,
                        .signal = std::make_shared<serving::WorkSignal>(),
                        .before_step = [&] { order += 'a'; }};
  Engine one(*network, options);
  options.before_step = [&] { order += 'b'; };
  Engine other(*network, options);
  serving::Engine* const both[] = {&one, &other};
  for (size_t i = 0; i < all.size(); ++i) submit(i % 2 == 0 ? one : other, i, beside[i]);
  for (serving::Engine* engine : both) engine->close();
  serving::run_engines(both);
  EXPECT_NE(order.find("aba"), std::string::npos) << order;  // a step of each in turn
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same_bits(alone[i], beside[i]);
  }
}

TEST(Engine, AGpuSendsWholeRowsOnlyToRequestsWhoseRulesChangeLogits) {
  const auto network = tiny_network("encdec");
  const int64_t vocab = network->spec().vocab_size;
  const std::vector<RequestCase> plain{
      {.inputs = {5, 6}, .request = {.rules = {.max_new_tokens = 5}}, .targets = {}},
      {.inputs = {5, 6},
       .request = {.rules = {.max_new_tokens = 5},
                   .sampling = {.temperature = 1, .top_k = 9, .top_p = 0.9f, .alternatives = 5},
                   .num_return_sequences = 3},
       .targets = {}},
      {.inputs = {5, 6},
       .request = {.rules = {.max_new_tokens = 5}, .num_beams = 4},
       .targets = {}},
      {.inputs = {5, 6}, .request = {}, .targets = {7, 8, 1}}};
  RequestCase ruled = plain.front();
  ruled.request.rules.repetition_penalty = 2;
  RequestCase wide = plain.front();
  wide.request.sampling.alternatives = kMostTop + 1;
  const auto whole_share = [&](const RequestCase& request_case) {
    RunningEngine one(*network, {.max_rows = 4});
    Ended ended;
    Job job = request_case.job(vocab);
    watch(job, ended);
    one.engine.submit(std::move(job));
    one.wait();
    EXPECT_TRUE(ended.over && ended.error == nullptr);
    const serving::EngineState state = one.engine.state();
    EXPECT_GT(state.row_steps, 0);
    return static_cast<double>(state.whole_rows) / static_cast<double>(state.row_steps);
  };
  for (const RequestCase& request_case : plain)
    EXPECT_EQ(whole_share(request_case), on_cpu() ? 1 : 0);
  EXPECT_EQ(whole_share(ruled), 1);
  EXPECT_EQ(whole_share(wide), 1);
}

TEST(Engine, ScoresAreThoseOfTheTokensItGenerates) {
  for (const char* kind :
       {"encdec", "decoder_only", "rotary_decoder_only", "multi_query_decoder_only",
        "parallel_decoder_only", "parallel_encdec", "fused_decoder_only"}) {
    const auto network = tiny_network(kind);
    const int64_t vocab = network->spec().vocab_size;
    RequestCase request_case{
        .inputs = {5, 6, 7}, .request = {.rules = {.max_new_tokens = 9}}, .targets = {}};
    if (network->spec().decoder_only()) request_case.inputs.insert(request_case.inputs.begin(), 0);
    Ended generated, scored;
    for (Ended* ended : {&generated, &scored}) {
      RunningEngine one(*network, {.max_rows = 2});
      Job job = request_case.job(vocab);
      watch(job, *ended);
      one.engine.submit(std::move(job));
      one.wait();
      request_case.targets = generated.results.front().ids();
    }
    const auto& a = generated.results.front().tokens;
    const auto& b = scored.results.front().tokens;
    ASSERT_EQ(a.size(), b.size());
    for (size_t t = 0; t < a.size(); ++t) {
      EXPECT_EQ(a[t].model_log_prob, b[t].model_log_prob);
      EXPECT_EQ(b[t].top.front().token, a[t].token);
    }
  }
}

TEST(EngineGolden, MeansOfEncodedInputsAreThoseOfTransformers) {
  const Json cases = Json::read(fixture_root() / "hf_generate" / "cases.json");
  const HostArrays inputs = read_safetensors(fixture_root() / "hf_generate" / "inputs.safetensors");
  const HostArrays outputs =
      read_safetensors(fixture_root() / "hf_generate" / "forward.safetensors");
  int checked = 0;
  for (const auto& [name, tolerance] : cases["forward_atol"].members()) {
    if (!name.ends_with("/mean_pooled") || name.find("masked_hole") != std::string::npos) continue;
    SCOPED_TRACE(name);
    const size_t slash = name.find('/');
    const std::string batch = name.substr(slash + 1, name.rfind('/') - slash - 1);
    const auto network = hf_network(fixture_root() / "hf_generate" / name.substr(0, slash));
    const HostArray& ids = inputs.at(batch + "/input_ids");
    const HostArray& mask = inputs.at(batch + "/attention_mask");
    const auto want = outputs.at(name).as<float>();
    const auto width = static_cast<size_t>(network.spec().emb_dim());
    std::vector<Ended> ended(static_cast<size_t>(ids.shape[0]));
    {
      RunningEngine running(network, {});
      for (size_t row = 0; row < ended.size(); ++row) {
        Job job;
        const auto length = static_cast<size_t>(ids.shape[1]);
        for (size_t t = row * length; t < (row + 1) * length; ++t)
          if (mask.as<int32_t>()[t] != 0) job.inputs.push_back(ids.as<int32_t>()[t]);
        watch(job, ended[row]);
        running.engine.submit(std::move(job));
      }
    }
    for (size_t row = 0; row < ended.size(); ++row)
      for (size_t e = 0; e < width; ++e) {
        double sum = 0;
        for (size_t i = e; i < ended[row].encoded.size(); i += width)
          sum += static_cast<double>(ended[row].encoded[i]);
        const double mean =
            sum * static_cast<double>(width) / static_cast<double>(ended[row].encoded.size());
        EXPECT_NEAR(mean, want[row * width + e], tolerance.as_double());
      }
    ++checked;
  }
  EXPECT_GT(checked, 0);
}

TEST(Engine, NumbersOfThreadsChangeNoBit) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer does not see how libgomp's teams wait for each other";
#endif
  const auto network = tiny_network("encdec");
  Asking asking(3, *network);
  const RequestCase request_case = asking.ask();
  std::vector<Ended> ended(3);
  for (size_t i = 0; i < ended.size(); ++i) {
    Engine engine(*network, {});
    Job job = request_case.job(network->spec().vocab_size);
    watch(job, ended[i]);
    engine.submit(std::move(job));
    engine.close();
    std::thread([&] {
      use_threads(static_cast<int>(i) + 1);
      engine.run();
    }).join();
    expect_same_bits(ended[0], ended[i]);
  }
}

}  // namespace
}  // namespace quintet::testing
