#include "apps/library/model.h"

#include "runtime/base/check.h"

namespace quintet::library {
namespace {

using Json = nlohmann::json;

std::vector<std::string> arguments_of(const std::string& model_dir,
                                      const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"serve", "--pipe", "--model_dir=" + model_dir};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return arguments;
}

/// The server's errors by the kinds of the command's exit codes.
ExitCode code_of(int32_t status) {
  if (status < 500) return ExitCode::kUsage;
  return status == 500 ? ExitCode::kBug : ExitCode::kEnvironment;
}

std::exception_ptr error_of(int32_t status, const std::string& body) {
  const Json parsed = Json::parse(body, nullptr, false);
  const std::string message = parsed.is_object() && parsed.contains("error")
                                  ? parsed["error"].value("message", body)
                                  : body;
  return std::make_exception_ptr(Error(code_of(status), message));
}

std::exception_ptr closed() {
  return std::make_exception_ptr(Error(ExitCode::kUsage, "the model is closed; load it again"));
}

}  // namespace

Model::Model(const std::string& model_dir, const std::vector<std::string>& flags)
    : worker_(arguments_of(model_dir, flags)), description_(worker_.greeting()) {
  QT_CHECK_AS(ExitCode::kEnvironment, !description_.empty(),
              "{}: ended without a word; is it the quintet of this library, {}?", program_path(),
              QUINTET_VERSION);
  reader_ = std::async(std::launch::async, [this] { read_answers(); });
}

void Model::close() {
  if (!reader_.valid()) return;
  end_calls(closed());
  worker_.end_input();
  if (reader_.wait_for(std::chrono::seconds(2)) != std::future_status::ready) worker_.kill();
  reader_.get();
}

/// The thread's: until the process ends.
void Model::read_answers() {
  try {
    FrameHead head;
    while (worker_.read_head(head, -1)) {
      std::string body(head.bytes, '\0');
      worker_.read_body(body.data(), body.size());
      const std::lock_guard lock(mutex_);
      if (take(head, std::move(body))) changed_.notify_all();
    }
    end_calls(std::make_exception_ptr(
        Error(ExitCode::kEnvironment, "the model's process has ended; load it again")));
  } catch (...) {
    end_calls(std::current_exception());
  }
}

bool Model::take(const FrameHead& head, std::string body) {
  const auto found = calls_.find(head.request);
  if (found == calls_.end()) return false;
  Call& call = *found->second;
  if (head.status == 0) {
    call.pieces.push_back(std::move(body));
    return true;
  }
  if (head.status != 200) call.error = error_of(head.status, body);
  call.body = std::move(body);
  call.over = true;
  calls_.erase(found);
  return true;
}

void Model::end_calls(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (ended_ == nullptr) ended_ = error;
  for (const auto& [id, call] : calls_) {
    call->error = ended_;
    call->over = true;
  }
  calls_.clear();
  changed_.notify_all();
}

CallPtr Model::ask(const std::string& target, const Json& body) {
  worker_.check_process();
  const std::string frame = target + "\n" + body.dump();
  const auto call = std::make_shared<Call>();
  {
    const std::lock_guard lock(mutex_);
    if (ended_ != nullptr) std::rethrow_exception(ended_);
    call->id = ++last_id_;
    calls_[call->id] = call;
  }
  const std::lock_guard lock(sending_);
  worker_.send(call->id, 0, frame);  // to a process that has ended: the thread sees it, too
  return call;
}

template <typename Ready>
bool Model::wait_until(double seconds, const Ready& ready) {
  worker_.check_process();
  std::unique_lock lock(mutex_);
  if (seconds < 0) return changed_.wait(lock, ready), true;
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds), ready);
}

bool Model::wait(Call& call, double seconds) {
  if (!wait_until(seconds, [&] { return call.over; })) return false;
  if (call.error != nullptr) std::rethrow_exception(call.error);
  return true;
}

bool Model::next(Call& call, double seconds, std::optional<std::string>& piece) {
  piece.reset();
  const bool there = wait_until(seconds, [&] {
    if (!call.pieces.empty()) {
      piece = std::move(call.pieces.front());
      call.pieces.pop_front();
    }
    return piece || call.over;
  });
  if (there && !piece && call.error != nullptr) std::rethrow_exception(call.error);
  return there;
}

void Model::cancel(Call& call) {
  if (!worker_.is_ours()) return;
  {
    const std::lock_guard lock(mutex_);
    if (calls_.erase(call.id) == 0) return;
  }
  const std::lock_guard lock(sending_);
  worker_.send(call.id, -1, "");
}

}  // namespace quintet::library
