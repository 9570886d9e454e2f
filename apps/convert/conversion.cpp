#include "apps/convert/conversion.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "apps/convert/compare_models.h"
#include "apps/convert/model_source.h"
#include "apps/convert/t5x_stacking.h"
#include "apps/flags/command_line.h"
#include "apps/input/run_vocabularies.h"
#include "apps/process/progress.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/write/copy_checkpoint.h"
#include "checkpoint/write/new_folder.h"
#include "kernels/device.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

std::string names_of_formats() {
  std::string names;
  for (const WriteFormat& format : write_formats())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", format.name);
  return names;
}

int64_t bytes_in(const StoredTensors& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors)
    bytes += checked_bytes(tensor.dtype, tensor.shape, name);
  return bytes;
}

int64_t megabytes(int64_t bytes) { return (bytes + 999'999) / 1'000'000; }

/// What lies beside the weights: the configuration and the vocabulary.
void write_side_files(const ModelSource& source, const WriteFormat& format,
                      const fs::path& folder) {
  if (format.is_run_directory) {
    write_new_file(folder / "config.gin", source.trained.session->config().config_str());
    return copy_vocabularies(folder, vocabularies_of(*source.trained.model));
  }
  if (!format.holds_models) return;
  for (const auto& [name, text] : source.directory().files) write_new_file(folder / name, text);
}

/// A native checkpoint's state, or the vocabularies.
std::string state_json_of(const ModelSource& source) {
  if (source.reader->is_native()) return source.reader->state_json();
  return nlohmann::ordered_json{{"vocabularies", to_json(vocabularies_of(*source.trained.model))}}
      .dump();
}

/// As --scan_axis says it, or else the model's own.
std::optional<t5x::Stacking> stacking_of(const ConversionFlags& flags, const ModelSource& source) {
  if (flags.format != "t5x") return std::nullopt;
  const ModelSpec& spec = source.trained.model->model->spec();
  if (!flags.scan_axis) return t5x_stacking(spec);
  return t5x::Stacking{*flags.scan_axis, spec.decoder.layer.num_heads};
}

WriteRequest request_of(const ConversionFlags& flags, const ModelSource& source,
                        const WriteFormat& format) {
  WriteRequest request;
  request.folder = NewFolder::prepared_path(flags.destination);
  request.step = source.reader->step();
  request.tensors = tensors_for(*source.reader, format, flags.weights());
  request.stacking = stacking_of(flags, source);
  if (!flags.shard_size.empty())
    request.shard_bytes = bytes_of_size("--shard_size", flags.shard_size);
  if (format.is_run_directory) {
    request.folder /= fmt::format("checkpoint_{}", request.step);
    request.state_json = state_json_of(source);
  } else if (format.holds_models) {
    request.config = source.directory().config;
  }
  return request;
}

void report(const ConversionFlags& flags, const ModelSource& source, const WriteFormat& format,
            const StoredTensors& tensors, const nlohmann::ordered_json& compared) {
  const size_t left = source.reader->tensors().size() - tensors.size();
  if (left > 0 && format.holds_models)
    fmt::print(stderr,
               "{}: without {} tensors of the optimizer's state, which {} has no place for\n",
               flags.destination, left, format.title);
  nlohmann::ordered_json object = {{"folder", flags.destination},
                                   {"format", format.name},
                                   {"step", source.reader->step()},
                                   {"tensors", tensors.size()},
                                   {"bytes", bytes_in(tensors)}};
  object.update(compared);
  flags.results.print_object(object.dump());
  flags.results.print_text(
      fmt::format("{}: {} of {} at step {}, {} tensors, {:.1f} MiB, read back and compared\n",
                  flags.destination, format.title, flags.source, source.reader->step(),
                  tensors.size(), static_cast<double>(bytes_in(tensors)) / (1 << 20)));
  if (!compared.empty())
    flags.results.print_text(fmt::format("logits of up to {:.6g} differ by up to {:.6g}\n",
                                         compared["largest_logit"].get<double>(),
                                         compared["largest_difference"].get<double>()));
}

}  // namespace

void ConversionFlags::add_to(CLI::App& app) {
  constexpr const char* kGroup = "Conversion to another format";
  app.add_option(
      "source", source,
      "the directory of a training run, a checkpoint of any program, or a Hugging Face directory");
  app.add_option("destination", destination, "a folder that does not exist yet")
      ->transform(mapped_path);
  app.add_option("--to", format, fmt::format("format of the destination: {}", names_of_formats()))
      ->group(kGroup);
  app.add_option("--dtype", dtype, "round the parameters to this type; default: as they are")
      ->group(kGroup)
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  app.add_option(
         "--shard_size", shard_size,
         "with --to=hf: largest size of a weights file, such as 5GB, 500MB or 2GiB; default: 50GB")
      ->group(kGroup);
  app.add_option(
         "--scan_axis", scan_axis,
         "with --to=t5x: all layers of a stack in one array, as scalable_t5 has them with "
         "scan_layers, along this axis; 1 is its param_scan_axis; default: an array a layer")
      ->group(kGroup)
      ->check(CLI::Range(0, 1));
  app.add_flag("--check", check,
               "compute logits with both models and print their largest difference")
      ->group(kGroup);
  ranks.add_to(app);
}

void ConversionFlags::check_with(bool quantizes) const {
  QT_CHECK(
      requested() != quantizes,
      "quintet convert: expected either SRC DST --to=FORMAT, or --model_dir=DIR --quantize=TYPE");
  QT_CHECK(requested() || (source.empty() && dtype.empty() && shard_size.empty() && !check),
           "quintet convert: SRC, --dtype, --shard_size and --check go with --to=FORMAT");
  QT_CHECK(!requested() || !destination.empty(),
           "quintet convert: name what is read and the folder that is written: SRC DST --to={}",
           format);
  QT_CHECK(!requested() || shard_size.empty() || !write_format_named(format).is_run_directory,
           "--shard_size={}: files of weights are divided so in Hugging Face directories alone",
           shard_size);
  QT_CHECK(format != "peft" || (dtype.empty() && !check),
           "--dtype and --check go with --to of a whole model; --to=peft writes an adapter alone");
  QT_CHECK(
      !scan_axis || format == "t5x",
      "--scan_axis={}: T5X's networks alone have all layers in one array; it goes with --to=t5x",
      *scan_axis);
}

std::optional<DType> ConversionFlags::weights() const {
  if (dtype.empty()) return std::nullopt;
  return dtype_from_name(dtype);
}

int64_t bytes_of_size(const std::string& flag, const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},         {"KB", 1e3},     {"MB", 1e6},    {"GB", 1e9},
      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  for (const auto& [unit, bytes] : kUnits)
    if (error == std::errc() && unit == std::string_view(end, text.data() + text.size()) &&
        number * bytes >= 1 && number * bytes < 0x1p62)
      return static_cast<int64_t>(number * bytes);
  fail(ExitCode::kUsage, "{}={}: expected a size such as 5GB, 500MB or 2GiB", flag, text);
}

void convert_model(const ConversionFlags& flags, const gin::CommandLine& gin_line) {
  const WriteFormat& format = write_format_named(flags.format);
  Ranks ranks(flags.ranks);
  ranks.agree_on_program(
      fmt::format("{} --adapter={} {} --to={} --dtype={} --shard_size={} --scan_axis={}",
                  flags.source, flags.adapter, flags.destination, flags.format, flags.dtype,
                  flags.shard_size, flags.scan_axis.value_or(-1)));
  ranks.open(Device::current());
  ModelSource source = open_model_source(flags.source, gin_line,
                                         format.is_run_directory || flags.check, flags.adapter);
  if (const auto stacking = stacking_of(flags, source))
    source.reader = t5x::stacked(source.reader, *stacking);
  const std::shared_ptr<HostGroup> together = ranks.writers();
  HostGroup alone;
  HostGroup& hosts = together ? *together : alone;
  stage(hosts, [&] { source.reader->verify_before_reading(hosts.index(), hosts.count()); });
  WriteRequest request = request_of(flags, source, format);
  request.run_id = ranks.of_leader(make_run_id());
  std::optional<NewFolder> folder;
  stage(hosts, [&] {
    if (ranks.leads()) folder.emplace(flags.destination);
  });
  PartsProgress progress;
  const int64_t total = megabytes(bytes_in(request.tensors) / hosts.count());
  copy_checkpoint(*source.reader, format, request, hosts, [&](const char* what, int64_t bytes) {
    if (ranks.leads()) progress.update(what, megabytes(bytes), total, "MB");
  });
  progress.finish();
  stage(hosts, [&] {
    if (!ranks.leads()) return;
    write_side_files(source, format, folder->prepared());
    auto compared = nlohmann::ordered_json::object();
    if (flags.check)
      compared =
          compare_models(flags.source, gin_line, folder->prepared(), flags.weights().has_value());
    folder->commit();
    report(flags, source, format, request.tensors, compared);
  });
}

}  // namespace quintet
