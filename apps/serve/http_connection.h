#pragma once
// One connection: requests read one after the other, their answers written. Private to the server.

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <set>

#include "apps/serve/http_server.h"

namespace quintet::serve {

class Connection;

struct HttpServer::Shared {
  HttpOptions options;
  HttpHandler handler;
  boost::asio::io_context io{1};
  std::set<std::shared_ptr<Connection>> open;
  std::atomic<int64_t> connections{0};
  bool draining = false;
};

/// Serves a connection that was accepted. `crowded`: only always_answered targets.
void start_connection(std::shared_ptr<HttpServer::Shared> shared,
                      boost::asio::ip::tcp::socket socket, bool crowded);
/// Closes those that wait for a request; the others close after their answer.
void close_idle(HttpServer::Shared& shared);
void close_all(HttpServer::Shared& shared);

}  // namespace quintet::serve
