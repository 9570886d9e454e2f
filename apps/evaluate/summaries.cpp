#include "apps/evaluate/summaries.h"

#include "runtime/metrics/event_file.h"
#include "runtime/metrics/metrics_log.h"

namespace quintet {

struct Summaries::State {
  std::filesystem::path model_dir;
  std::optional<int64_t> resumed_step;
  MetricsLog log;
  std::map<std::string, EventFile> events;

  EventFile& file(const std::string& run) {
    auto found = events.find(run);
    if (found == events.end())
      found = events.emplace(run, EventFile(model_dir / run, resumed_step)).first;
    return found->second;
  }
};

Summaries::Summaries(std::filesystem::path model_dir, int64_t metrics_bytes,
                     std::optional<int64_t> resumed_step)
    : state_(new State{model_dir, resumed_step, {model_dir / "metrics.jsonl", metrics_bytes}, {}}) {
}

Summaries::Summaries() = default;
std::unique_ptr<Summaries> Summaries::none() { return std::unique_ptr<Summaries>(new Summaries); }
Summaries::~Summaries() = default;

void Summaries::write(const std::string& run, int64_t step,
                      const std::map<std::string, double>& scalars) {
  log(run, step, scalars);
  if (EventFile* file = events(run))
    for (const auto& [name, value] : scalars) file->scalar(name, step, value);
}

void Summaries::log(const std::string& run, int64_t step,
                    const std::map<std::string, double>& scalars) {
  if (state_ != nullptr) state_->log.write(run, step, scalars);
}

EventFile* Summaries::events(const std::string& run) {
  return state_ == nullptr ? nullptr : &state_->file(run);
}

void Summaries::write_text(const std::string& run, const std::string& tag,
                           const std::string& markdown) {
  if (state_ != nullptr) state_->file(run).text(tag, 0, markdown);
}

void Summaries::flush() {
  if (state_ == nullptr) return;
  state_->log.flush();
  for (auto& [run, file] : state_->events) file.flush();
}

void Summaries::close() {
  if (state_ == nullptr) return;
  state_->log.close();
  for (auto& [run, file] : state_->events) file.close();
}

int64_t Summaries::metrics_bytes() const { return state_ == nullptr ? 0 : state_->log.bytes(); }

}  // namespace quintet
