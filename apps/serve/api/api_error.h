#pragma once
// What is wrong with a request, as OpenAI's clients expect it.

#include <string>

#include "runtime/base/check.h"

namespace quintet::serve {

/// An answer other than 200: `param` names the field, `code` is for programs.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& message, std::string param = "", std::string code = "")
      : std::runtime_error(message),
        status_(status),
        param_(std::move(param)),
        code_(std::move(code)) {}
  int status() const { return status_; }
  /// {"error": {"message", "type", "param", "code"}}
  std::string body() const;

 private:
  int status_;
  std::string param_, code_;
};

/// Any exception as an answer: usage errors are the client's (400), a full queue is 503 (429 for
/// one client's share) and so is a lack of memory, a deadline 504, the rest is ours (500).
ApiError as_api_error(const std::exception_ptr& error);

}  // namespace quintet::serve
