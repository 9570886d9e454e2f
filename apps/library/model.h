#pragma once
// A model in a process of its own, and requests to it from any thread.
//
//   const auto model = std::make_shared<Model>("/tmp/numbers", flags);
//   const CallPtr call = model->ask("/tokenize", {{"prompt", "a"}});
//   if (model->wait(*call, 0.1)) use(call->body);

#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/library/worker.h"

namespace quintet::library {

/// A request under way. The model's lock guards it until it is over.
struct Call {
  uint64_t id = 0;
  std::deque<std::string> pieces;  // of a stream, not taken yet
  bool over = false;
  std::string body;               // what it came to
  std::exception_ptr error = {};  // or why it came to nothing
};
using CallPtr = std::shared_ptr<Call>;

class Model {
 public:
  /// Throws what the program says if it cannot load it, and kEnvironment if the program is of another version.
  Model(const std::string& model_dir, const std::vector<std::string>& flags);
  ~Model() { close(); }
  /// Requests that still run end with a usage error, and so do those to come. A process that has not ended after two
  /// seconds is killed.
  void close();
  /// Whether this process made it, and was not forked from that one.
  bool is_ours() const { return worker_.is_ours(); }
  const std::string& description() const { return description_; }

  CallPtr ask(const std::string& target, const nlohmann::json& body);
  /// Until it is over. False: not in so many seconds (negative: however long). Throws the call's error.
  bool wait(Call& call, double seconds);
  /// The next piece of a stream: none when it is over. False as above.
  bool next(Call& call, double seconds, std::optional<std::string>& piece);
  /// Nobody wants it any more.
  void cancel(Call& call);

 private:
  void read_answers();
  bool take(const FrameHead& head, std::string body);
  void end_calls(const std::exception_ptr& error);
  template <typename Ready>
  bool wait_until(double seconds, const Ready& ready);

  Worker worker_;
  std::string description_;
  std::mutex mutex_, sending_;
  std::condition_variable changed_;
  std::map<uint64_t, CallPtr> calls_;
  std::exception_ptr ended_;  // why no more can be asked
  uint64_t last_id_ = 0;
  std::future<void> reader_;
};

}  // namespace quintet::library
