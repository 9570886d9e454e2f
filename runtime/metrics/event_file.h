#pragma once
// TensorBoard event files, as TensorFlow 2's summary writer makes them: scalars, texts,
// histograms, images, audio and tensors for other plugins.
//
//   EventFile events(model_dir / "train", resumed_step);
//   events.scalar("loss", step, 2.5);
//   events.flush();
//
// A writer always makes a new file; TensorBoard joins the files of a folder. A run that was resumed
// says so in its file, and TensorBoard then drops what the run before wrote from that step on.

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/files/posix_file.h"

namespace quintet {

namespace tensorboard {
class Event;
}

class EventFile {
 public:
  /// Creates the folder and in it events.out.tfevents.<time>.<host>.<process>.<n>.v2.
  /// `resumed_step`: the first step that is written again. Throws kDisk.
  explicit EventFile(const std::filesystem::path& folder, std::optional<int64_t> resumed_step = {});
  /// Flushes; an error there is lost.
  ~EventFile();
  EventFile(EventFile&&) = default;

  void scalar(std::string_view tag, int64_t step, double value);
  /// Markdown, for the text tab.
  void text(std::string_view tag, int64_t step, std::string_view markdown);
  /// Numbers counted in `buckets` equal parts of their range.
  void histogram(std::string_view tag, int64_t step, std::span<const double> values,
                 int64_t buckets = 30);
  /// PNG files of one size.
  void images(std::string_view tag, int64_t step, int64_t width, int64_t height,
              const std::vector<std::string>& pictures);
  /// WAV files.
  void audio(std::string_view tag, int64_t step, const std::vector<std::string>& clips);
  /// A plugin of TensorBoard, and what it says of its data.
  struct Plugin {
    std::string name, content;
  };
  /// float32.
  void tensor(std::string_view tag, int64_t step, const Plugin& plugin,
              std::span<const int64_t> shape, std::span<const double> values);
  /// Hands everything to the system; also done by itself every 64 KiB. Throws kDisk.
  void flush();
  /// Flushes and closes; some file systems report an error only then. Nothing is written
  /// afterwards.
  void close();
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  void blobs(std::string_view tag, int64_t step, const Plugin& plugin,
             std::span<const int64_t> shape, std::span<const std::string> blobs);
  void append(const tensorboard::Event& event);
  File file_;
  std::string pending_;
  int64_t written_ = 0;
};

/// What a reader of event files sees; for tests and reports.
struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string tag;  // empty: not a summary
  double scalar = 0;
  std::string text;               // of a text summary
  std::vector<double> histogram;  // [buckets][left, right, count]
  bool session_start = false;
  bool is_scalar = false;
};
/// Calls `take` with each event in turn. Throws kData where the file is damaged or ends within an event.
void for_events(const std::filesystem::path& file, const std::function<void(const Event&)>& take);
/// The first with a step: the start of a session, or a summary. Reads the file's beginning alone; none: there is no
/// such event.
std::optional<Event> first_step_event(const std::filesystem::path& file);
/// All events of a file. Throws kData if it is damaged.
std::vector<Event> read_event_file(const std::filesystem::path& file);

}  // namespace quintet
