#include "runtime/metrics/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/base/proto_wire.h"
#include "runtime/base/tfrecord.h"

namespace quintet {
namespace {

// Field numbers of tensorflow/core/util/event.proto, framework/summary.proto and tensor.proto.
namespace event_field {
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace value_field {
constexpr uint32_t kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9;
}
namespace tensor_field {
constexpr uint32_t kDtype = 1, kShape = 2, kContent = 4, kFloat = 5, kString = 8;
}
constexpr uint32_t kFloatType = 1, kDoubleType = 2, kStringType = 7;  // DataType
constexpr uint32_t kScalarClass = 1, kTensorClass = 2;                // DataClass
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

/// SummaryMetadata of one of TensorBoard's plugins.
std::string plugin_metadata(std::string_view plugin, uint32_t data_class) {
  ProtoWriter data, metadata;
  data.bytes(1, plugin);
  metadata.bytes(1, data.str());
  metadata.varint(4, data_class);
  return metadata.str();
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
  event(0, event_field::kFileVersion, "brain.Event:2");
  if (resumed_step) {
    ProtoWriter session;
    session.varint(1, 1);  // SessionLog.status = START
    event(*resumed_step, event_field::kSessionLog, session.str());
  }
  flush();
}

EventFile::~EventFile() {
  try {
    close();
  } catch (const Error&) {  // NOLINT: destructors must not throw; close() before reports it
  }
}

void EventFile::event(int64_t step, uint32_t field, std::string_view content) {
  ProtoWriter event;
  event.float64(event_field::kWallTime, now());
  if (step != 0) event.varint(event_field::kStep, static_cast<uint64_t>(step));
  event.bytes(field, content);
  append_tfrecord(pending_, event.str());
  if (pending_.size() >= kFlushBytes) flush();
}

void EventFile::value(std::string_view tag, int64_t step, std::string_view tensor,
                      std::string_view metadata) {
  ProtoWriter value, summary;
  value.bytes(value_field::kTag, tag);
  value.bytes(value_field::kTensor, tensor);
  value.bytes(value_field::kMetadata, metadata);
  summary.bytes(1, value.str());
  event(step, event_field::kSummary, summary.str());
}

void EventFile::scalar(std::string_view tag, int64_t step, double number) {
  ProtoWriter tensor;
  tensor.varint(tensor_field::kDtype, kFloatType);
  tensor.bytes(tensor_field::kShape, "");
  tensor.float32(tensor_field::kFloat, static_cast<float>(number));
  value(tag, step, tensor.str(), plugin_metadata("scalars", kScalarClass));
}

void EventFile::text(std::string_view tag, int64_t step, std::string_view markdown) {
  ProtoWriter tensor;
  tensor.varint(tensor_field::kDtype, kStringType);
  tensor.bytes(tensor_field::kShape, "");
  tensor.bytes(tensor_field::kString, markdown);
  value(tag, step, tensor.str(), plugin_metadata("text", kTensorClass));
}

void EventFile::histogram(std::string_view tag, int64_t step, std::span<const double> values,
                          int64_t buckets) {
  const std::vector<double> rows = histogram_rows(values, buckets);
  ProtoWriter shape, tensor;
  for (const int64_t size : {buckets, int64_t{3}}) {
    ProtoWriter dim;
    dim.varint(1, static_cast<uint64_t>(size));
    shape.bytes(2, dim.str());
  }
  tensor.varint(tensor_field::kDtype, kDoubleType);
  tensor.bytes(tensor_field::kShape, shape.str());
  tensor.bytes(tensor_field::kContent,
               {reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(double)});
  value(tag, step, tensor.str(), plugin_metadata("histograms", kTensorClass));
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

void read_tensor(std::string_view message, Event& event) {
  for (ProtoReader tensor(message); tensor.next();) {
    if (tensor.field() == tensor_field::kString) event.text = tensor.bytes();
    if (tensor.field() == tensor_field::kContent) {
      event.histogram.resize(tensor.bytes().size() / sizeof(double));
      std::memcpy(event.histogram.data(), tensor.bytes().data(), tensor.bytes().size());
    }
    if (tensor.field() != tensor_field::kFloat) continue;
    event.scalar = static_cast<double>(tensor.float32());
  }
}

void read_summary(std::string_view message, Event& event) {
  for (ProtoReader summary(message); summary.next();)
    for (ProtoReader value(summary.bytes()); value.next();) {
      if (value.field() == value_field::kTag) event.tag = value.bytes();
      if (value.field() == value_field::kTensor) read_tensor(value.bytes(), event);
      if (value.field() == value_field::kSimpleValue)
        event.scalar = static_cast<double>(value.float32());
    }
}

}  // namespace

std::vector<Event> read_event_file(const std::filesystem::path& file) {
  const std::string bytes = read_file(file);
  std::vector<Event> events;
  for (std::string_view rest = bytes; auto record = next_tfrecord(rest, file.string());) {
    Event event;
    for (ProtoReader r(*record); r.next();) {
      if (r.field() == event_field::kWallTime) event.wall_time = r.float64();
      if (r.field() == event_field::kStep) event.step = static_cast<int64_t>(r.varint());
      if (r.field() == event_field::kSessionLog) event.session_start = true;
      if (r.field() == event_field::kSummary) read_summary(r.bytes(), event);
    }
    events.push_back(std::move(event));
  }
  return events;
}

}  // namespace quintet
