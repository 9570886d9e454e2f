#include "apps/serve/api/api_error.h"

#include <nlohmann/json.hpp>

#include "models/serving/job.h"
#include "runtime/base/memory/out_of_memory.h"

namespace quintet::serve {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401:
    case 403:
      return "authentication_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

std::string ApiError::body() const {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  const Json body = {{"error",
                      {{"message", what()},
                       {"type", type_of(status_)},
                       {"param", or_null(param_)},
                       {"code", or_null(code_)}}}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

ApiError no_memory() {
  return ApiError(503,
                  "the server has no memory left for this request; try again later, or ask for "
                  "fewer or shorter answers",
                  "", "out_of_memory");
}

}  // namespace

ApiError as_api_error(const std::exception_ptr& error) {
  using enum serving::Refused::Reason;
  try {
    std::rethrow_exception(error);
  } catch (const ApiError& api) {
    return api;
  } catch (const serving::Refused& refused) {
    switch (refused.reason()) {
      case kTooLarge:
        return ApiError(400, refused.what(), "", "request_too_large");
      case kQueueFull:
        return ApiError(503, refused.what(), "", "queue_full");
      case kClosed:
        return ApiError(503, refused.what(), "", "shutting_down");
      case kDeadline:
        return ApiError(504, refused.what(), "", "timeout");
      case kCancelled:
        return ApiError(499, refused.what(), "", "cancelled");
    }
    return ApiError(500, refused.what());
  } catch (const OutOfMemory&) {
    return no_memory();
  } catch (const Error& wrong) {
    const bool clients = wrong.code() == ExitCode::kUsage || wrong.code() == ExitCode::kData;
    return ApiError(clients ? 400 : 500, wrong.what());
  } catch (const std::bad_alloc&) {
    return no_memory();
  } catch (const std::exception& other) {
    return ApiError(500, other.what());
  }
}

}  // namespace quintet::serve
