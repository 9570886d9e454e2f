// `quintet bench load`: how long a model's weights take until they can be used, and until the first token.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/bench/bench.h"
#include "apps/flags/command_line.h"
#include "apps/flags/compute_flags.h"
#include "apps/flags/quantize_flag.h"
#include "apps/flags/result_format.h"
#include "apps/model/predictor.h"
#include "apps/model/trained_model.h"
#include "apps/model/weights/stored_parameters.h"
#include "runtime/base/clock.h"
#include "runtime/base/files/posix_file.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string model_dir;
  int64_t repeat = 3, inputs = 16;
  QuantizeFlag quantize;
  ComputeFlags compute;
  ResultFormat format;
};

/// Seconds of each part; the least of all repetitions.
struct Measured {
  double cat = 1e9, open = 1e9, read = 1e9, pack = 1e9, first_token = 1e9;
  double bytes = 0;  // of the files
};

/// As `cat FILE > /dev/null`: every byte once through a buffer.
double read_files(const fs::path& model, double& bytes) {
  std::vector<char> buffer(size_t{1} << 20);
  std::vector<fs::path> files;
  if (fs::is_directory(model)) {
    for (const auto& entry : fs::recursive_directory_iterator(model))
      if (entry.is_regular_file()) files.push_back(entry.path());
  } else {
    files.push_back(model);  // of `quintet export`
  }
  const auto start = Clock::now();
  bytes = 0;
  for (const fs::path& path : files) {
    const File file = File::open_read(fs::weakly_canonical(path));
    for (ssize_t n; (n = ::read(file.descriptor(), buffer.data(), buffer.size())) > 0;)
      bytes += static_cast<double>(n);
  }
  return seconds_since(start);
}

/// All elements of a parameter, exclusive-ored: each is read.
template <typename T>
uint32_t bits_of_elements(const decoding::StoredParameter& parameter) {
  const View& view = parameter.values;
  int64_t outer = view.rows(), inner = view.depth(), stride = inner;
  if (parameter.strides) {
    const auto [rows, columns] = *parameter.strides;
    stride = rows;
    if (columns != 1) {
      std::swap(outer, inner);
      stride = columns;
    }
  }
  const auto* elements = static_cast<const T*>(view.pointer);
  uint32_t bits = 0;
#pragma omp parallel for reduction(^ : bits) schedule(static)
  for (int64_t i = 0; i < outer; ++i) {
    const T* run = elements + i * stride;
#pragma omp simd reduction(^ : bits)
    for (int64_t j = 0; j < inner; ++j) bits ^= run[j];
  }
  return bits;
}

uint32_t bits_of(const decoding::StoredParameter& parameter) {
  const int64_t size = size_of(parameter.values.dtype);
  return size == 1   ? bits_of_elements<uint8_t>(parameter)
         : size == 2 ? bits_of_elements<uint16_t>(parameter)
                     : bits_of_elements<uint32_t>(parameter);
}

volatile uint32_t bits_read;  // so that reading is not left out

/// Reads every parameter as packing does, and packs none.
double read_parameters(const TrainedModel& trained, Weights weights) {
  constexpr int64_t kElements = 4 << 20;  // of a part, about
  weights.stored = trained.reader;
  const auto start = Clock::now();
  const decoding::ParameterSource source = source_of(weights);
  uint32_t bits = 0;
  for (const ParamInfo& info : trained.model->model->parameters().all()) {
    const std::vector<Axis>& axes = info.spec.axes;
    if (!source.has_parts() || axes.size() < 2) {
      bits ^= bits_of(source(info.name));
      continue;
    }
    const bool by_rows = axes.size() > 2 || info.name.ends_with("embedding");
    const auto axis = size_t{by_rows ? 0U : 1U};
    int64_t across = 1;
    for (size_t i = 0; i < axes.size(); ++i) across *= i == axis ? 1 : axes[i].size;
    const int64_t most = axes.size() > 2 ? 1 : std::max<int64_t>(kElements / across, 1);
    for (int64_t first = 0; first < axes[axis].size; first += most)
      bits ^= bits_of(source.part(
          info.name, {static_cast<int>(axis), first, std::min(most, axes[axis].size - first)}));
  }
  const double seconds = seconds_since(start);
  bits_read = bits;
  return seconds;
}

void measure(const Options& options, Measured& best) {
  const auto least = [](double& of, double seconds) { of = std::min(of, seconds); };
  least(best.cat, read_files(options.model_dir, best.bytes));
  auto start = Clock::now();
  const TrainedModel trained = open_trained_model(options.model_dir, {}, Load::to_generate);
  least(best.open, seconds_since(start));
  const Weights weights = weights_to_generate(options.quantize.type(), trained.reader);
  least(best.read, read_parameters(trained, weights));
  start = Clock::now();
  const Predictor predictor(*trained.model, {}, weights);
  least(best.pack, seconds_since(start));
  start = Clock::now();
  HostArrays batch;
  auto& inputs = batch["encoder_input_tokens"] = HostArray(DType::i32, {1, options.inputs});
  std::fill(inputs.as<int32_t>().begin(), inputs.as<int32_t>().end(), 1);
  batch["decoder_input_tokens"] = HostArray(DType::i32, {1, 1});
  decoding::DecodingRequest request;
  request.rules.max_new_tokens = 1;
  std::vector<decoding::DecodingRequest> requests;
  requests.push_back(std::move(request));
  predictor.answer(batch, std::move(requests));
  least(best.first_token, seconds_since(start));
}

}  // namespace

int run_bench_load(std::span<char* const> args) {
  Options options;
  CommandLine cli(
      "bench load",
      "Loads a model, several times: seconds until its files are open and checked, until "
      "its weights are packed, from then to the first token; and of reading the same "
      "files as cat does, and the weights as packing does, without packing. Times are the "
      "minimum over all repetitions.",
      "quintet bench load --model_dir=flan-t5-base --threads=2\n"
      "quintet bench load --model_dir=flan-t5-base --quantize=int8");
  CLI::App& app = cli.app();
  app.add_option("MODEL,--model_dir", options.model_dir,
                 "the directory of a training run, a checkpoint, or a Hugging Face directory")
      ->required();
  app.add_option("--repeat", options.repeat, "number of repetitions")->check(CLI::Range(1, 1000));
  app.add_option("--inputs", options.inputs, "tokens of the input")->check(CLI::Range(1, 100'000));
  options.quantize.add_to(app);
  options.compute.add_to(app);
  options.format.add_to(app);
  if (!cli.parse(args)) return 0;
  options.compute.start();
  Measured m;
  for (int64_t i = 0; i < options.repeat; ++i) measure(options, m);
  const double usable = m.open + m.pack, megabytes = m.bytes / 1e6;
  const nlohmann::ordered_json json = {{"bench", "load"},
                                       {"model_dir", options.model_dir},
                                       {"megabytes", megabytes},
                                       {"cat_seconds", m.cat},
                                       {"open_seconds", m.open},
                                       {"read_seconds", m.read},
                                       {"pack_seconds", m.pack},
                                       {"usable_seconds", usable},
                                       {"first_token_seconds", m.first_token}};
  options.format.print_object(json.dump());
  options.format.print_text(fmt::format(
      "{:.0f} MB\ncat          {:8.4f} s  {:.0f} MB/s\nopen         {:8.4f} s\nread         "
      "{:8.4f} s  {:.2f} x cat, with open\npack         {:8.4f} s, which reads, too\nusable    "
      "   {:8.4f} s  {:.2f} x cat\nfirst token  {:8.4f} s after that\n",
      megabytes, m.cat, megabytes / m.cat, m.open, m.read, (m.open + m.read) / m.cat, m.pack,
      usable, usable / m.cat, m.first_token));
  return 0;
}

}  // namespace quintet
