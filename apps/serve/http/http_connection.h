#pragma once
// One connection: requests read one after the other, their answers written. Private to the server.

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <map>
#include <memory>
#include <set>

#include "apps/serve/http/http_server.h"

namespace quintet::serve {

class Connection;

struct HttpServer::Shared {
  HttpOptions options;
  HttpHandler handler;
  boost::asio::io_context io{1};
  std::set<std::shared_ptr<Connection>> open;
  std::deque<std::shared_ptr<Connection>> crowd;  // those of them beyond a limit, the oldest first
  std::map<std::string, int64_t> addresses;       // how many of the others each client has
  std::atomic<int64_t> connections{0};
  bool draining = false;
};

// Beyond the limits on connections, so many more are taken to say 503, and to tell a probe that all
// is well. Another one takes the place of the oldest.
constexpr size_t kCrowd = 32;

/// Serves a connection that was accepted; beyond a limit only always_answered targets.
void start_connection(std::shared_ptr<HttpServer::Shared> shared,
                      boost::asio::ip::tcp::socket socket);
/// Closes those that wait for a request; the others close after their answer.
void close_idle(HttpServer::Shared& shared);
void close_all(HttpServer::Shared& shared);

}  // namespace quintet::serve
