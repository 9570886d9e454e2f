#include "runtime/metrics/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/formats/json.h"
#include "runtime/base/formats/tfrecord.h"
#include "runtime/metrics/event.pb.h"

namespace quintet {
namespace {

constexpr size_t kFlushBytes = 64 << 10;

double now() {
  using namespace std::chrono;
  return duration<double>(system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

bool has_event_files(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder)) return false;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) return true;
  return false;
}

File new_event_file(const std::filesystem::path& folder) {
  make_folders(folder);
  const auto seconds = static_cast<int64_t>(now());
  for (int n = 0;; ++n) {
    const auto path = folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}.v2", seconds,
                                           host_name(), getpid(), n);
    if (!std::filesystem::exists(path)) return File::create_new(path);
  }
}

tensorboard::Event event_at(int64_t step) {
  tensorboard::Event event;
  event.set_wall_time(now());
  if (step != 0) event.set_step(step);
  return event;
}

/// The event's one value, shown by one of TensorBoard's plugins; returns its tensor, to be filled.
tensorboard::Tensor& add_value(tensorboard::Event& event, std::string_view tag,
                               const EventFile::Plugin& plugin, tensorboard::DataClass data_class,
                               tensorboard::DataType dtype, std::span<const int64_t> shape = {}) {
  tensorboard::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(tag.data(), tag.size());
  auto& data = *value.mutable_metadata()->mutable_plugin_data();
  data.set_plugin_name(plugin.name);
  if (!plugin.content.empty()) data.set_content(plugin.content);
  if (data_class != tensorboard::DATA_CLASS_UNKNOWN)
    value.mutable_metadata()->set_data_class(data_class);
  value.mutable_tensor()->set_dtype(dtype);
  auto& sizes = *value.mutable_tensor()->mutable_tensor_shape();
  for (const int64_t size : shape) sizes.add_dim()->set_size(size);
  return *value.mutable_tensor();
}

/// TensorBoard's buckets: [buckets][left, right, count]; equal numbers are all in the last one.
std::vector<double> histogram_rows(std::span<const double> values, int64_t buckets) {
  std::vector<double> rows(static_cast<size_t>(3 * buckets), 0.0);
  if (values.empty() || buckets < 1) return rows;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double low = *least, range = *most - low, count = static_cast<double>(buckets);
  for (int64_t i = 0; i < buckets; ++i) {
    rows[static_cast<size_t>(3 * i)] = low + range * static_cast<double>(i) / count;
    rows[static_cast<size_t>(3 * i + 1)] = low + range * static_cast<double>(i + 1) / count;
  }
  for (const double value : values) {
    const double bucket = range > 0 ? std::floor((value - low) / (range / count)) : count - 1;
    rows[static_cast<size_t>(3 * std::min(static_cast<int64_t>(bucket), buckets - 1) + 2)] += 1;
  }
  return rows;
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, std::optional<int64_t> resumed_step) {
  // TensorBoard drops later events at a start of session, but never at the first one it sees.
  if (!has_event_files(folder)) resumed_step = resumed_step.value_or(0);
  file_ = new_event_file(folder);
  tensorboard::Event version = event_at(0);
  version.set_file_version("brain.Event:2");
  append(version);
  if (resumed_step) {
    tensorboard::Event start = event_at(*resumed_step);
    start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
    append(start);
  }
  flush();
}

EventFile::~EventFile() {
  try {
    close();
  } catch (const Error&) {  // NOLINT: destructors must not throw; close() before reports it
  }
}

void EventFile::append(const tensorboard::Event& event) {
  append_tfrecord(pending_, event.SerializeAsString());
  if (pending_.size() >= kFlushBytes) flush();
}

void EventFile::scalar(std::string_view tag, int64_t step, double number) {
  tensorboard::Event event = event_at(step);
  add_value(event, tag, {"scalars", ""}, tensorboard::DATA_CLASS_SCALAR, tensorboard::DT_FLOAT)
      .add_float_val(static_cast<float>(number));
  append(event);
}

void EventFile::text(std::string_view tag, int64_t step, std::string_view markdown) {
  tensorboard::Event event = event_at(step);
  add_value(event, tag, {"text", ""}, tensorboard::DATA_CLASS_TENSOR, tensorboard::DT_STRING)
      .add_string_val(markdown.data(), markdown.size());
  append(event);
}

void EventFile::histogram(std::string_view tag, int64_t step, std::span<const double> values,
                          int64_t buckets) {
  const std::vector<double> rows = histogram_rows(values, buckets);
  tensorboard::Event event = event_at(step);
  add_value(event, tag, {"histograms", ""}, tensorboard::DATA_CLASS_TENSOR, tensorboard::DT_DOUBLE,
            std::array{buckets, int64_t{3}})
      .set_tensor_content(rows.data(), rows.size() * sizeof(double));
  append(event);
}

void EventFile::images(std::string_view tag, int64_t step, int64_t width, int64_t height,
                       const std::vector<std::string>& pictures) {
  std::vector<std::string> all = {std::to_string(width), std::to_string(height)};
  all.insert(all.end(), pictures.begin(), pictures.end());
  blobs(tag, step, {"images", ""}, std::array{std::ssize(all)}, all);
}

void EventFile::audio(std::string_view tag, int64_t step, const std::vector<std::string>& clips) {
  std::vector<std::string> all;
  for (const std::string& clip : clips) all.insert(all.end(), {clip, ""});  // no label
  constexpr const char* kWav = "\x10\x0b";  // AudioPluginData.encoding
  blobs(tag, step, {"audio", kWav}, std::array{std::ssize(clips), std::ptrdiff_t{2}}, all);
}

void EventFile::tensor(std::string_view tag, int64_t step, const Plugin& plugin,
                       std::span<const int64_t> shape, std::span<const double> values) {
  const std::vector<float> numbers(values.begin(), values.end());
  tensorboard::Event event = event_at(step);
  add_value(event, tag, plugin, tensorboard::DATA_CLASS_UNKNOWN, tensorboard::DT_FLOAT, shape)
      .set_tensor_content(numbers.data(), numbers.size() * sizeof(float));
  append(event);
}

void EventFile::blobs(std::string_view tag, int64_t step, const Plugin& plugin,
                      std::span<const int64_t> shape, std::span<const std::string> blobs) {
  tensorboard::Event event = event_at(step);
  tensorboard::Tensor& tensor =
      add_value(event, tag, plugin, tensorboard::DATA_CLASS_UNKNOWN, tensorboard::DT_STRING, shape);
  for (const std::string& blob : blobs) tensor.add_string_val(blob);
  append(event);
}

void EventFile::close() {
  if (file_.descriptor() < 0) return;
  flush();
  file_.close_checked();
}

void EventFile::flush() {
  if (pending_.empty()) return;
  file_.write_at(written_, std::as_bytes(std::span(pending_.data(), pending_.size())));
  written_ += static_cast<int64_t>(pending_.size());
  pending_.clear();
}

namespace {

template <typename T>
std::vector<double> numbers_in(const std::string& content) {
  std::vector<T> values(content.size() / sizeof(T));
  std::memcpy(values.data(), content.data(), values.size() * sizeof(T));
  return {values.begin(), values.end()};
}

/// TensorFlow's writers put numbers into tensor_content, ours a scalar into float_val, older ones into simple_value.
void read_value(const tensorboard::Summary::Value& value, const std::string& file, Event& event) {
  const tensorboard::Tensor& tensor = value.tensor();
  event.tag = value.tag();
  if (tensor.string_val_size() > 0) event.text = tensor.string_val(0);
  const std::string& content = tensor.tensor_content();
  const bool is_float = tensor.dtype() == tensorboard::DT_FLOAT;
  const size_t size = is_float ? sizeof(float) : sizeof(double);
  QT_CHECK_AS(ExitCode::kData, content.size() % size == 0,
              "{}: '{}' holds a tensor of {} bytes, expected numbers of {} bytes each", file,
              event.tag, content.size(), size);
  std::vector<double> numbers = is_float ? numbers_in<float>(content) : numbers_in<double>(content);
  event.is_scalar = value.has_simple_value() || tensor.float_val_size() == 1 ||
                    (numbers.size() == 1 && tensor.tensor_shape().dim_size() == 0);
  if (!event.is_scalar)
    event.histogram = std::move(numbers);
  else if (tensor.float_val_size() == 1)
    event.scalar = static_cast<double>(tensor.float_val(0));
  else
    event.scalar = numbers.empty() ? static_cast<double>(value.simple_value()) : numbers[0];
}

/// One for each value; without values one.
std::vector<Event> read_event(std::string_view record, int64_t number, const std::string& file) {
  tensorboard::Event message;
  QT_CHECK_AS(ExitCode::kData,
              std::in_range<int>(record.size()) &&
                  message.ParseFromArray(record.data(), static_cast<int>(record.size())),
              "{}: record {} is not an event of TensorBoard: malformed protocol buffer", file,
              number);
  Event event;
  event.wall_time = message.wall_time();
  event.step = message.step();
  event.session_start = message.has_session_log();
  std::vector<Event> events;
  for (const auto& value : message.summary().value())
    read_value(value, file, events.emplace_back(event));
  if (events.empty()) events.push_back(event);
  return events;
}

}  // namespace

void for_events(const std::filesystem::path& file, const std::function<void(const Event&)>& take) {
  const std::string bytes = read_file(file);
  int64_t number = 0;
  for (std::string_view rest = bytes; auto record = next_tfrecord(rest, file.string());)
    for (const Event& event : read_event(*record, number++, file.string())) take(event);
}

std::optional<Event> first_step_event(const std::filesystem::path& file) {
  constexpr int64_t kBeginning = 1 << 16;
  const File from = File::open_read(file);
  std::string bytes(static_cast<size_t>(std::min(from.size(), kBeginning)), '\0');
  from.read_at(0, std::as_writable_bytes(std::span(bytes)));
  try {
    for (std::string_view rest = bytes; auto record = next_tfrecord(rest, file.string());) {
      const Event event = read_event(*record, 0, file.string())[0];
      if (event.session_start || !event.tag.empty()) return event;
    }
  } catch (const Error&) {  // The beginning ends within an event.
  }
  return std::nullopt;
}

std::vector<Event> read_event_file(const std::filesystem::path& file) {
  std::vector<Event> events;
  for_events(file, [&](const Event& event) { events.push_back(event); });
  return events;
}

}  // namespace quintet
