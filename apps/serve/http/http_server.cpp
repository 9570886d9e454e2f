#include "apps/serve/http/http_server.h"

#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/signal_set.hpp>
#include <csignal>

#include "apps/serve/http/http_connection.h"
#include "apps/serve/http/log.h"
#include "runtime/base/check.h"

namespace quintet::serve {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::seconds kAfterLate{5};

/// Files this process may open: sockets, and some for itself.
void allow_files(int64_t connections) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const auto wanted = static_cast<rlim_t>(connections + 64) + kCrowd;
  if (files.rlim_cur >= wanted) return;
  files.rlim_cur = std::min(wanted, files.rlim_max);
  setrlimit(RLIMIT_NOFILE, &files);
  QT_CHECK_AS(
      ExitCode::kEnvironment, files.rlim_cur >= wanted,
      "--max_connections={} needs {} open files, this process may have {}: raise 'ulimit -n' "
      "or ask for fewer",
      connections, wanted, files.rlim_max);
}

}  // namespace

/// Accepts connections and waits for signals.
struct Listener : std::enable_shared_from_this<Listener> {
  Listener(std::shared_ptr<HttpServer::Shared> s)
      : shared(std::move(s)), acceptor(shared->io), signals(shared->io), pause(shared->io) {}

  void open() {
    const HttpOptions& options = shared->options;
    error_code error;
    const auto address =
        asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
    QT_CHECK(!error,
             "--host={}: not an address; 127.0.0.1 is this machine only, 0.0.0.0 all networks",
             options.host);
    const tcp::endpoint endpoint(address, options.port);
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    const bool other_host = error == boost::system::errc::address_not_available;
    QT_CHECK_AS(ExitCode::kEnvironment, !error, "cannot listen on {}:{}: {}; choose another {}",
                options.host, options.port, error.message(),
                other_host ? "--host: this machine does not have that address" : "--port");
    signals.add(SIGINT);
    signals.add(SIGTERM);
    signals.add(SIGUSR1);  // which mpirun passes on without a deadline
  }

  void accept() {
    acceptor.async_accept([self = shared_from_this()](error_code error, tcp::socket socket) {
      if (self->shared->draining) return;
      if (!error) {
        self->start(std::move(socket));
        return self->accept();
      }
      self->pause.expires_after(
          std::chrono::milliseconds(100));  // no files or memory left, for now
      self->pause.async_wait([self](error_code) {
        if (!self->shared->draining) self->accept();
      });
    });
  }

  void start(tcp::socket socket) {
    try {
      start_connection(shared, std::move(socket));
    } catch (const std::exception& error) {  // out of memory: the others are still accepted
      log_line("serve: a connection is lost: {}\n", error.what());
    }
  }

  void wait_for_signals(int seen = 0) {
    signals.async_wait([self = shared_from_this(), seen](error_code error, int number) {
      if (error) return;
      if (seen > 0) _exit(128 + number);
      if (self->shared->options.on_signal) self->shared->options.on_signal();
      self->wait_for_signals(seen + 1);
    });
  }

  /// Stops the loop when all connections are closed, or the time is over.
  void drain(std::chrono::steady_clock::time_point until, std::function<void()> late) {
    shared->draining = true;
    error_code ignored;
    acceptor.close(ignored);
    close_idle(*shared);
    bool over = std::chrono::steady_clock::now() >= until;
    if (over && late) {
      std::exchange(late, nullptr)();
      until += kAfterLate;
      over = false;
    }
    if (shared->open.empty() || over) {
      close_all(*shared);
      signals.cancel(ignored);
      shared->io.stop();
      return;
    }
    pause.expires_after(std::chrono::milliseconds(20));
    pause.async_wait([self = shared_from_this(), until, late = std::move(late)](error_code) {
      self->drain(until, late);
    });
  }

  std::shared_ptr<HttpServer::Shared> shared;
  tcp::acceptor acceptor;
  asio::signal_set signals;
  asio::steady_timer pause;
};

HttpServer::HttpServer(HttpOptions options, HttpHandler handler)
    : shared_(std::make_shared<Shared>()) {
  std::signal(SIGPIPE, SIG_IGN);
  allow_files(options.limits.connections);
  shared_->options = std::move(options);
  shared_->handler = std::move(handler);
  listener_ = std::make_shared<Listener>(shared_);
  listener_->open();
  listener_->accept();
  listener_->wait_for_signals();
}

HttpServer::~HttpServer() {
  close_all(*shared_);
  listener_ = nullptr;
  shared_->io.restart();  // what is left holds connections, and they hold the loop
  shared_->io.poll();
}

uint16_t HttpServer::port() const { return listener_->acceptor.local_endpoint().port(); }
int64_t HttpServer::connections() const { return shared_->connections; }

void HttpServer::run() {
  while (!shared_->io.stopped()) {
    try {
      shared_->io.run();
    } catch (const std::exception& error) {  // out of memory, say: that connection is lost
      log_line("serve: {}\n", error.what());
    }
  }
}

void HttpServer::drain(double seconds, std::function<void()> late) {
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
  asio::post(shared_->io, [listener = listener_, until, late = std::move(late)] {
    listener->drain(until, late);
  });
}

}  // namespace quintet::serve
