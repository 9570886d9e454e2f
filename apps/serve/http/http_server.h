#pragma once
// An HTTP/1.1 server for untrusted clients: one thread owns all sockets, every read and write
// has a deadline, everything a client sends or leaves unread is bounded, and a client that goes
// away is noticed at once. Knows nothing of models. Boost.Beast stays in http_server.cpp and
// http_connection.cpp.
//
//   HttpServer server({.port = 8000}, [](HttpRequest request, std::shared_ptr<Exchange> exchange) {
//     exchange->respond({.status = 200, .body = "hello\n"});       // now or later, from any thread
//   });
//   std::thread sockets([&] { server.run(); });                    // until drain() or stop()

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace quintet::serve {

struct HttpLimits {
  int64_t body_bytes = 1 << 20;
  int64_t header_bytes = 16 << 10;
  int64_t target_bytes = 4096;  // of the URL
  int64_t connections = 512;    // further ones get 503, unless they ask for health
  /// Likewise, of one client's address (in IPv6: network of 64 bits). 0: half of all, and any
  /// number of loopback addresses, where a proxy may speak for many clients.
  int64_t connections_per_address = 0;
  int64_t unread_bytes = 256 << 10;  // of a stream that a client has not taken yet
  double header_seconds = 5;         // from the first byte of a request to the end of its headers
  double body_seconds = 30;
  double write_seconds = 30;  // for each piece of an answer
  double idle_seconds = 60;   // between two requests of a connection
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any that is free
  HttpLimits limits = {};
  /// Called in the sockets' thread on SIGINT and SIGTERM; the second one ends the process.
  std::function<void()> on_signal = {};
  /// The answer to what is wrong with a request as HTTP, or to one connection too many.
  std::function<std::string(int status, const std::string& message)> error_body = {};
  /// Told of each such answer, but for those to connections beyond a limit: its body is empty, and so
  /// are method and target as far as they were not read.
  std::function<void(const struct HttpRequest& request, int status)> refused = {};
  /// Targets that are answered even when there are too many connections.
  std::vector<std::string> always_answered = {};
};

struct HttpRequest {
  std::string method, target;  // target: the path, without the query
  std::string body;
  std::string authorization, origin;  // headers
  std::string host;                   // of the target, or else the header; well-formed or empty
  std::string client;                 // address
  bool to_loopback = false;           // the address of ours that it came to
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::shared_ptr<const void> held = {};  // released when the answer is written, or never will be
};

/// One request's answer. All functions may be called from any thread; after the client has left
/// they do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void respond(HttpResponse response) = 0;
  /// An answer in pieces (server-sent events): begins, sends, ends.
  virtual void begin_stream(std::string content_type) = 0;
  virtual void send(std::string piece) = 0;
  virtual void end_stream() = 0;
  /// Called in the sockets' thread if the client leaves before its answer is complete; at once if
  /// it has left already.
  virtual void on_gone(std::function<void()> gone) = 0;
  /// The client has left.
  virtual bool gone() const = 0;
};

/// Called in the sockets' thread; must not block.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<Exchange>)>;

class HttpServer {
 public:
  /// Binds and listens. Throws kEnvironment naming the address when that fails.
  HttpServer(HttpOptions options, HttpHandler handler);
  ~HttpServer();

  uint16_t port() const;
  int64_t connections() const;
  /// Serves until stopped.
  void run();
  /// From any thread, once. Takes no more connections; those there are close after the answer they
  /// wait for, and run() returns when all have. After `seconds` it calls `late`, which should end
  /// what is still being answered, and soon cuts what is left.
  void drain(double seconds, std::function<void()> late = {});

  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<struct Listener> listener_;
};

}  // namespace quintet::serve
