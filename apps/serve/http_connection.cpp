#include "apps/serve/http_connection.h"

#include <fmt/format.h>

#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <optional>

namespace quintet::serve {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace asio = boost::asio;
using boost::system::error_code;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

std::string text(beast::string_view view) { return {view.data(), view.size()}; }

}  // namespace

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<HttpServer::Shared> shared, asio::ip::tcp::socket socket, bool crowded)
      : shared_(std::move(shared)),
        stream_(std::move(socket)),
        timer_(shared_->io),
        buffer_(static_cast<size_t>(limits().header_bytes) + kReadAhead),
        crowded_(crowded) {
    error_code ignored;
    client_ = stream_.socket().remote_endpoint(ignored).address().to_string();
    stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    // What a client does not read stays within bounds in the kernel, too.
    stream_.socket().set_option(asio::socket_base::send_buffer_size(128 << 10), ignored);
    ++shared_->connections;
  }
  ~Connection() { --shared_->connections; }

  /// Waits for the first byte, then reads headers against the clock.
  void start() {
    stream_.expires_after(milliseconds(limits().header_seconds));
    stream_.async_read_some(buffer_.prepare(kReadAhead),
                            [self = shared_from_this()](error_code error, size_t bytes) {
                              if (error) return self->close();
                              self->buffer_.commit(bytes);
                              self->read_header();
                            });
  }

  void close() {
    error_code ignored;
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    stream_.close();
    timer_.cancel();
    leave();
    shared_->open.erase(shared_from_this());
  }

  void close_if_idle() {
    if (!busy_) close();
  }

 private:
  class OneExchange;
  static constexpr size_t kReadAhead = 16 << 10;
  const HttpLimits& limits() const { return shared_->options.limits; }

  void read_header() {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(limits().header_bytes));
    parser_->body_limit(static_cast<uint64_t>(limits().body_bytes));
    refuse_after(limits().header_seconds);
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](error_code error, size_t) {
                              error ? self->refuse(error) : self->read_body();
                            });
  }

  void read_body() {
    busy_ = true;
    const auto& head = parser_->get();
    if (std::ssize(head.target()) > limits().target_bytes)
      return refuse(414, "the URL is too long");
    if (head.count(http::field::host) > 1 ||
        (head.version() == 11 && !head.count(http::field::host)))
      return refuse(400, "a request needs one Host header");
    if (head.count(http::field::transfer_encoding) > 0 && !parser_->chunked())
      return refuse(501, "the only transfer encoding is chunked");
    if (crowded_ && !always_answered())
      return refuse(503, fmt::format("{} connections are open already", limits().connections));
    if (beast::iequals(head[http::field::expect], "100-continue"))
      write("HTTP/1.1 100 Continue\r\n\r\n");
    refuse_after(limits().body_seconds);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](error_code error, size_t) {
                       error ? self->refuse(error) : self->handle();
                     });
  }

  bool always_answered() const {
    const auto& all = shared_->options.always_answered;
    return std::find(all.begin(), all.end(), path()) != all.end();
  }
  std::string path() const {
    const auto target = parser_->get().target();
    return text(target.substr(0, target.find('?')));
  }

  void handle();

  /// While an answer is made, what is read is the end of the connection, or what waits in the
  /// buffer for its turn: the next request, as far as there is room for it.
  void watch() {
    if (buffer_.size() >= kReadAhead || watching_) return;
    watching_ = true;
    stream_.expires_never();
    stream_.async_read_some(buffer_.prepare(kReadAhead - buffer_.size()),
                            [self = shared_from_this()](error_code error, size_t bytes) {
                              self->watching_ = false;
                              self->buffer_.commit(bytes);
                              const bool next = !self->busy_ && self->buffer_.size() > 0;
                              if (next && self->stream_.socket().is_open())
                                return self->read_header();
                              error ? self->close() : self->watch();
                            });
  }

  /// The stream's own deadline would close without a word.
  void refuse_after(double seconds) {
    stream_.expires_never();
    timer_.expires_after(milliseconds(seconds));
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (error || self->busy_answering()) return;
      self->late_ = true;
      self->stream_.cancel();
    });
  }
  bool busy_answering() const { return exchange_ != nullptr || !queue_.empty(); }

  /// What is wrong with what the client sent, as far as it deserves an answer.
  void refuse(error_code error) {
    if (error == http::error::body_limit)
      return refuse(413, fmt::format("the body exceeds {} bytes", limits().body_bytes));
    if (error == http::error::header_limit) {
      if (parser_->get().target().empty()) return refuse(414, "the URL is too long");
      return refuse(431, fmt::format("the headers exceed {} bytes", limits().header_bytes));
    }
    if (std::exchange(late_, false)) return refuse(408, "the request did not come in time");
    if (error.category() == make_error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message)
      return refuse(400, "not an HTTP request: " + error.message());
    close();
  }
  void refuse(int status, const std::string& message) {
    timer_.cancel();
    closes_ = true;
    busy_ = true;
    HttpResponse response{.status = status,
                          .body = shared_->options.error_body
                                      ? shared_->options.error_body(status, message)
                                      : message + "\n"};
    if (status == 503) response.headers.emplace_back("Retry-After", "1");
    write_response(response);
  }

  void write_response(const HttpResponse& response) {
    std::string head = fmt::format(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {}\r\n",
        response.status, text(http::obsolete_reason(static_cast<http::status>(response.status))),
        response.content_type, response.body.size(), ends() ? "close" : "keep-alive");
    for (const auto& [name, value] : response.headers)
      head += fmt::format("{}: {}\r\n", name, value);
    head += "\r\n";
    complete_ = true;
    write(is_head_ ? head : head + response.body);
  }
  bool ends() const { return closes_ || shared_->draining; }

  void write(std::string bytes) {
    unsent_ += std::ssize(bytes);
    queue_.push_back(std::move(bytes));
    if (streaming_ && unsent_ > limits().unread_bytes) return close();  // the client does not read
    if (queue_.size() == 1) write_next();
  }
  void write_next() {
    stream_.expires_after(milliseconds(limits().write_seconds));
    asio::async_write(stream_, asio::buffer(queue_.front()),
                      [self = shared_from_this()](error_code error, size_t) {
                        if (error) return self->close();
                        self->unsent_ -= std::ssize(self->queue_.front());
                        self->queue_.pop_front();
                        if (!self->queue_.empty()) return self->write_next();
                        if (self->complete_) self->answered();
                      });
  }

  void answered() {
    complete_ = streaming_ = false;
    gone_ = nullptr;
    exchange_ = nullptr;
    if (ends()) return linger();
    busy_ = false;
    if (!watching_) return read_header();             // the buffer is full of the next request
    if (buffer_.size() > 0) return stream_.cancel();  // it is there
    close_after(limits().idle_seconds);  // the read that is pending gets the next request
  }
  void close_after(double seconds) {
    timer_.expires_after(milliseconds(seconds));
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (!error) self->close();
    });
  }

  /// Closes once the client has read its answer: what it still sends is thrown away for a moment,
  /// since closing on unread bytes would take the answer back.
  void linger() {
    error_code ignored;
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    if (watching_) return close_after(1);
    stream_.expires_after(std::chrono::seconds(1));
    discard();
  }
  void discard() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(kReadAhead),
                            [self = shared_from_this()](error_code error, size_t) {
                              error ? self->close() : self->discard();
                            });
  }

  void leave() {
    if (auto gone = std::exchange(gone_, nullptr)) gone();
    exchange_ = nullptr;
  }

  std::shared_ptr<HttpServer::Shared> shared_;
  beast::tcp_stream stream_;
  asio::steady_timer timer_;  // of the request, or of the time between two
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::string client_;
  bool crowded_, late_ = false, busy_ = false, watching_ = false;
  // Of the request that is being answered:
  OneExchange* exchange_ = nullptr;
  std::function<void()> gone_;
  bool closes_ = false, is_head_ = false, chunked_ = false, streaming_ = false, complete_ = false;
  std::deque<std::string> queue_;
  int64_t unsent_ = 0;
};

/// Passes what any thread says on to the sockets' thread.
class Connection::OneExchange : public Exchange,
                                public std::enable_shared_from_this<Connection::OneExchange> {
 public:
  explicit OneExchange(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)) {}

  void respond(HttpResponse response) override {
    post([response = std::move(response)](Connection& c) { c.write_response(response); });
  }
  void begin_stream(std::string content_type) override {
    post([type = std::move(content_type)](Connection& c) {
      c.streaming_ = true;
      if (!c.chunked_) c.closes_ = true;
      c.write(
          fmt::format("HTTP/1.1 200 OK\r\nContent-Type: {}\r\nCache-Control: no-cache\r\n{}"
                      "Connection: {}\r\n\r\n",
                      type, c.chunked_ ? "Transfer-Encoding: chunked\r\n" : "",
                      c.ends() ? "close" : "keep-alive"));
    });
  }
  void send(std::string piece) override {
    post([piece = std::move(piece)](Connection& c) {
      c.write(c.chunked_ ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : piece);
    });
  }
  void end_stream() override {
    post([](Connection& c) {
      c.complete_ = true;
      c.write(c.chunked_ ? "0\r\n\r\n" : "");
    });
  }
  void on_gone(std::function<void()> gone) override {
    asio::post(connection_->shared_->io, [self = shared_from_this(), gone = std::move(gone)] {
      if (self->connection_->exchange_ == self.get())
        self->connection_->gone_ = gone;
      else
        gone();
    });
  }

 private:
  template <class Action>
  void post(Action action) {
    asio::post(connection_->shared_->io, [self = shared_from_this(), action = std::move(action)] {
      if (self->connection_->exchange_ == self.get()) action(*self->connection_);
    });
  }
  std::shared_ptr<Connection> connection_;
};

void Connection::handle() {
  timer_.cancel();
  auto message = parser_->release();
  closes_ = !message.keep_alive();
  is_head_ = message.method() == http::verb::head;
  chunked_ = message.version() == 11;
  HttpRequest request{.method = is_head_ ? "GET" : text(message.method_string()),
                      .target = text(message.target().substr(0, message.target().find('?'))),
                      .body = std::move(message.body()),
                      .authorization = text(message[http::field::authorization]),
                      .origin = text(message[http::field::origin]),
                      .host = text(message[http::field::host]),
                      .client = client_};
  auto exchange = std::make_shared<OneExchange>(shared_from_this());
  exchange_ = exchange.get();
  watch();
  try {
    shared_->handler(std::move(request), std::move(exchange));
  } catch (const std::exception& error) {  // out of memory, say
    refuse(500, error.what());
  }
}

void start_connection(std::shared_ptr<HttpServer::Shared> shared, asio::ip::tcp::socket socket,
                      bool crowded) {
  auto connection = std::make_shared<Connection>(shared, std::move(socket), crowded);
  shared->open.insert(connection);
  connection->start();
}

void close_idle(HttpServer::Shared& shared) {
  const auto all = shared.open;
  for (const auto& connection : all) connection->close_if_idle();
}

void close_all(HttpServer::Shared& shared) {
  const auto all = shared.open;
  for (const auto& connection : all) connection->close();
}

}  // namespace quintet::serve
