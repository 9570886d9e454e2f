// POST /v1/batch: many requests in one body, a line each as OpenAI's batch files have them. Answers
// come as lines of the files that OpenAI makes of them, each as soon as it is there.

#include <deque>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/serve/answer_text.h"
#include "apps/serve/insist.h"
#include "apps/serve/job_group.h"

namespace quintet::serve {
namespace {

struct Line {
  std::string custom_id, target, body;
};

class Batch : public std::enable_shared_from_this<Batch> {
 public:
  Batch(Service& service, const HttpRequest& request, const Client& client,
        std::shared_ptr<Exchange> exchange, std::vector<Line> lines)
      : service_(service),
        asked_(request),
        client_(client),
        exchange_(std::move(exchange)),
        lines_(std::move(lines)) {
    for (size_t i = 0; i < lines_.size(); ++i) waiting_.push_back(i);
  }

  void start() {
    exchange_->begin_stream("application/jsonl");
    exchange_->on_gone([self = shared_from_this()] { self->cancel(); });
    run_next();
  }

 private:
  class LineExchange;
  struct Running {
    std::function<void()> gone;  // ends it if the client leaves
    bool alone = false;          // when it began
  };

  /// As many at a time as a step of the batch takes.
  void run_next();

  void over(size_t index, const HttpResponse& response) {
    bool last = false, again = false;
    {
      const std::lock_guard lock(mutex_);
      const auto running = running_.find(index);
      if (running == running_.end()) return;
      const bool alone = running->second.alone;
      running_.erase(running);
      // Others of this batch hold what it needs: once they are over, as they may be by now, there is room.
      again = response.status == 503 && !(alone && running_.empty());
      if (again) waiting_.push_front(index);
      last = running_.empty() && waiting_.empty();
    }
    if (!again) insist([&] { exchange_->send(line_of(index, response)); });
    if (!last) return;
    exchange_->end_stream();
    service_.answered(asked_, 200, lines_.size());
  }

  std::string line_of(size_t index, const HttpResponse& response) const {
    std::string_view body = response.body;
    if (body.ends_with('\n')) body.remove_suffix(1);
    std::string out = fmt::format(R"({{"id":"batch_req_{}","custom_id":)", index + 1);
    write_string(out, lines_[index].custom_id);
    fmt::format_to(std::back_inserter(out),
                   R"(,"response":{{"status_code":{},"request_id":"{}","body":{}}},"error":null}})",
                   response.status, index + 1, body);
    return out + "\n";
  }

  void cancel() {
    std::map<size_t, Running> running;
    {
      const std::lock_guard lock(mutex_);
      running.swap(running_);
      waiting_.clear();
    }
    for (const auto& [index, line] : running)
      if (line.gone) line.gone();
    service_.answered(asked_, Service::kClientLeft, lines_.size());
  }

  Service& service_;
  const Asked asked_;
  const Client client_;
  const std::shared_ptr<Exchange> exchange_;
  const std::vector<Line> lines_;
  std::mutex mutex_;
  std::deque<size_t> waiting_;
  std::map<size_t, Running> running_;
};

/// One line's answer, which becomes a line of the batch's.
class Batch::LineExchange : public Exchange {
 public:
  LineExchange(std::shared_ptr<Batch> batch, size_t index)
      : batch_(std::move(batch)), index_(index) {}
  void respond(HttpResponse response) override {
    batch_->over(index_, response);
    batch_->run_next();
  }
  void begin_stream(std::string) override { fail(ExitCode::kBug, "a batch's line streams"); }
  void send(std::string) override {}
  void end_stream() override {}
  void on_gone(std::function<void()> gone) override {
    {
      const std::lock_guard lock(batch_->mutex_);
      const auto running = batch_->running_.find(index_);
      if (running != batch_->running_.end()) {
        running->second.gone = std::move(gone);
        return;
      }
    }
    gone();
  }
  bool gone() const override { return batch_->exchange_->gone(); }

 private:
  const std::shared_ptr<Batch> batch_;
  const size_t index_;
};

void Batch::run_next() {
  for (;;) {
    size_t index = 0;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty() || std::ssize(running_) >= service_.options().engine.max_rows) return;
      index = waiting_.front();
      waiting_.pop_front();
      const bool alone = running_.empty();
      running_[index].alone = alone;
    }
    const Line& line = lines_[index];
    try {
      service_.dispatch({.method = "POST",
                         .target = line.target,
                         .body = line.body,
                         .authorization = {},
                         .origin = {},
                         .host = {},
                         .client = client_.name},
                        client_, std::make_shared<LineExchange>(shared_from_this(), index));
    } catch (...) {
      over(index, error_response(as_api_error(std::current_exception())));
    }
  }
}

Line read_line(std::string_view text, const std::function<void()>& check_stop) {
  Fields fields{std::string(text), check_stop};
  const auto needed = [&](const std::string& name) {
    std::string value = fields.string(name, "");
    if (value.empty()) throw ApiError(400, name + ": is missing", name);
    return value;
  };
  Line line{.custom_id = needed("custom_id"), .target = needed("url"), .body = {}};
  if (fields.string("method", "POST") != "POST") throw ApiError(400, "method: POST", "method");
  if (!line.target.starts_with("/") || line.target == "/v1/batch")
    throw ApiError(400, "url: expected /v1/completions or another one that answers POST", "url");
  const auto body = fields.get("body");
  if (!body || !body->is_object()) throw ApiError(400, "body: expected an object", "body");
  if (body->has("stream") && body->raw()["stream"] == true)
    throw ApiError(400, "stream: answers of a batch come whole", "stream");
  fields.check_all_read();
  line.body = dumped(body->raw());
  return line;
}

std::vector<Line> read_lines(const std::string& body, const std::function<void()>& check_stop) {
  std::vector<Line> lines;
  std::set<std::string> ids;
  size_t number = 0;
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = std::min(body.find('\n', begin), body.size());
    const std::string_view text = std::string_view(body).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      lines.push_back(read_line(text, check_stop));
    } catch (const ApiError& error) {
      if (error.status() != 400) throw;
      throw ApiError(400, fmt::format("line {}: {}", number, error.what()));
    }
    if (!ids.insert(lines.back().custom_id).second)
      throw ApiError(400, fmt::format("line {}: custom_id: another line has it, too", number));
  }
  if (lines.empty()) throw ApiError(400, "the body has no line {\"custom_id\", \"url\", \"body\"}");
  return lines;
}

}  // namespace

void answer_batch(Service& service, const HttpRequest& request, const Client& client,
                  std::shared_ptr<Exchange> exchange) {
  const auto check_stop = [&exchange] {
    if (exchange->gone()) throw ApiError(499, "the client has left", "", "cancelled");
  };
  std::vector<Line> lines = read_lines(request.body, check_stop);
  std::make_shared<Batch>(service, request, client, std::move(exchange), std::move(lines))->start();
}

}  // namespace quintet::serve
