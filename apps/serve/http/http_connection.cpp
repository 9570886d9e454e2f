#include "apps/serve/http/http_connection.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <optional>
#include <vector>

#include "apps/serve/http/host_names.h"

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

// A client that reads has taken what was written before this is over, also on a busy machine.
constexpr std::chrono::milliseconds kHandOver(20);

// To send a request, for a connection beyond the limits.
constexpr double kCrowdSeconds = 1;

asio::ip::address plain(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  return address;
}

/// Whose connections are counted together.
std::string network_of(const asio::ip::address& address) {
  if (address.is_v4()) return address.to_string();
  const auto bytes = address.to_v6().to_bytes();
  return std::string(bytes.begin(), bytes.begin() + 8);
}

struct Refusal {
  int status;
  std::string message;
};

/// What is wrong with a request's headers. What the body is coded in must be understood, or two
/// servers in a row disagree about where it ends.
std::optional<Refusal> refusal(const http::request_header<>& head) {
  if (head.count(http::field::host) > 1 || (head.version() == 11 && !head.count(http::field::host)))
    return Refusal{400, "a request needs one Host header"};
  const RequestTarget target = split_target(text(head.target()));
  if (head.count(http::field::host) > 0 && !host_name(text(head[http::field::host])))
    return Refusal{400, "Host: expected NAME or NAME:PORT"};
  if (target.authority && !host_name(*target.authority))
    return Refusal{400, "the URL's host: expected NAME or NAME:PORT"};
  if (const auto codings = head.count(http::field::transfer_encoding); codings > 0) {
    if (head.version() < 11) return Refusal{400, "HTTP/1.0 has no Transfer-Encoding"};
    if (codings > 1 || !beast::iequals(head[http::field::transfer_encoding], "chunked"))
      return Refusal{501, "the only transfer encoding is chunked"};
  }
  const auto [first, last] = head.equal_range(http::field::content_encoding);
  for (auto coding = first; coding != last; ++coding)
    if (!coding->value().empty() && !beast::iequals(coding->value(), "identity"))
      return Refusal{415, "the only content encoding is identity: send the body as it is"};
  return std::nullopt;
}

}  // namespace

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<HttpServer::Shared> shared, asio::ip::tcp::socket socket)
      : shared_(std::move(shared)),
        stream_(std::move(socket)),
        timer_(shared_->io),
        buffer_(static_cast<size_t>(limits().header_bytes) + kReadAhead) {
    error_code ignored;
    const auto address = plain(stream_.socket().remote_endpoint(ignored).address());
    client_ = address.to_string();
    network_ = network_of(address);
    from_loopback_ = address.is_loopback();
    to_loopback_ = plain(stream_.socket().local_endpoint(ignored).address()).is_loopback();
    stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    // What a client does not read stays within bounds in the kernel, too.
    stream_.socket().set_option(asio::socket_base::send_buffer_size(128 << 10), ignored);
    ++shared_->connections;
  }
  ~Connection() { --shared_->connections; }

  /// Takes its place among the others, waits for the first byte, then reads headers against the
  /// clock.
  void start() {
    why_crowded_ = beyond_limit();
    if (why_crowded_.empty()) {
      shared_->open.insert(shared_from_this());
      ++shared_->addresses[network_];
    } else {
      if (shared_->crowd.size() >= kCrowd) shared_->crowd.front()->turn_away();
      shared_->crowd.push_back(shared_from_this());
      shared_->open.insert(shared_from_this());
    }
    stream_.expires_never();  // its own deadline would close without a word
    timer_.expires_after(milliseconds(header_seconds()));
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (!error && !self->parser_) self->turn_away();
    });
    stream_.async_read_some(buffer_.prepare(kReadAhead),
                            [self = shared_from_this()](error_code error, size_t bytes) {
                              if (error) return self->close();
                              self->buffer_.commit(bytes);
                              self->read_header();
                            });
  }

  void close() {
    const auto self = shared_from_this();
    error_code ignored;
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    stream_.close();
    timer_.cancel();
    leave();
    std::erase(shared_->crowd, self);
    if (shared_->open.erase(self) == 0 || crowded()) return;
    const auto mine = shared_->addresses.find(network_);
    if (mine != shared_->addresses.end() && --mine->second == 0) shared_->addresses.erase(mine);
  }

  /// Closes. One beyond a limit that has heard nothing yet hears why, as far as that takes no time;
  /// what it has sent is read first, or closing would take the answer back.
  void turn_away() {
    auto& socket = stream_.socket();
    if (crowded() && !busy_ && socket.is_open()) {
      error_code error;
      socket.non_blocking(true, error);
      std::array<char, 4096> thrown_away;
      for (int i = 0; i < 16 && !error; ++i) socket.read_some(asio::buffer(thrown_away), error);
      closes_ = true;
      const HttpResponse answer = error_response(503, why_crowded_);
      socket.write_some(asio::buffer(head_of(answer) + answer.body), error);
    }
    close();
  }

  void close_if_idle() {
    if (!busy_) close();
  }

 private:
  class OneExchange;
  static constexpr size_t kReadAhead = 16 << 10;
  const HttpLimits& limits() const { return shared_->options.limits; }
  bool crowded() const { return !why_crowded_.empty(); }
  double header_seconds() const {
    return crowded() ? std::min(kCrowdSeconds, limits().header_seconds) : limits().header_seconds;
  }

  /// The limit on connections that another one exceeds, for people; empty: none.
  std::string beyond_limit() const {
    const auto open = std::ssize(shared_->open) - std::ssize(shared_->crowd);
    if (open >= limits().connections) return fmt::format("{} connections are open already", open);
    const int64_t given = limits().connections_per_address;
    if (given == 0 && from_loopback_) return "";
    const int64_t most = given > 0 ? given : std::max<int64_t>(1, limits().connections / 2);
    const auto mine = shared_->addresses.find(network_);
    if (mine == shared_->addresses.end() || mine->second < most) return "";
    return fmt::format("{} connections of this address are open already", most);
  }

  void read_header() {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(limits().header_bytes));
    parser_->body_limit(static_cast<uint64_t>(limits().body_bytes));
    refuse_after(header_seconds());
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
    if (const auto wrong = refusal(head)) return refuse(wrong->status, wrong->message);
    if (crowded() && !always_answered()) return refuse(503, why_crowded_);
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
    const std::string path = split_target(text(parser_->get().target())).path;
    return std::find(all.begin(), all.end(), path) != all.end();
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

  void refuse_after(double seconds) {
    stream_.expires_never();
    timer_.expires_after(milliseconds(seconds));
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (error || self->busy_answering()) return;
      self->late_ = true;
      self->stream_.cancel();
    });
  }
  bool busy_answering() const { return exchange_ != nullptr || unsent_ > 0; }

  /// What is wrong with what the client sent, as far as it deserves an answer.
  void refuse(error_code error) {
    if (error == http::error::body_limit)
      return refuse(413, fmt::format("the body exceeds {} bytes", limits().body_bytes));
    if (error == http::error::header_limit) {
      if (parser_->get().target().empty()) return refuse(414, "the URL is too long");
      return refuse(431, fmt::format("the headers exceed {} bytes", limits().header_bytes));
    }
    if (std::exchange(late_, false))
      return crowded() ? refuse(503, why_crowded_)
                       : refuse(408, "the request did not come in time");
    if (error.category() == make_error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message)
      return refuse(400, "not an HTTP request: " + error.message());
    close();
  }
  void refuse(int status, const std::string& message) {
    timer_.cancel();
    closes_ = true;
    busy_ = true;
    if (!crowded() && shared_->options.refused) shared_->options.refused(refused_request(), status);
    write_response(error_response(status, message));
  }
  HttpRequest refused_request() const {
    const auto& head = parser_->get();
    return {.method = text(head.method_string()),
            .target = split_target(text(head.target())).path,
            .body = {},
            .authorization = {},
            .origin = {},
            .host = {},
            .client = client_};
  }
  HttpResponse error_response(int status, const std::string& message) const {
    HttpResponse response{.status = status,
                          .body = shared_->options.error_body
                                      ? shared_->options.error_body(status, message)
                                      : message + "\n"};
    if (status == 503) response.headers.emplace_back("Retry-After", "1");
    if (status == 415) response.headers.emplace_back("Accept-Encoding", "identity");
    return response;
  }

  void write_response(HttpResponse response) {
    complete_ = true;
    held_ = std::move(response.held);
    std::string head = head_of(response);
    if (response.body.size() < kReadAhead) {  // one packet
      write(is_head_ ? head : head + response.body);
      return;
    }
    write(std::move(head));
    if (!is_head_) write(std::move(response.body));
  }
  std::string head_of(const HttpResponse& response) const {
    std::string head = fmt::format(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {}\r\n",
        response.status, text(http::obsolete_reason(static_cast<http::status>(response.status))),
        response.content_type, response.body.size(), ends() ? "close" : "keep-alive");
    for (const auto& [name, value] : response.headers)
      head += fmt::format("{}: {}\r\n", name, value);
    return head + "\r\n";
  }
  bool ends() const { return closes_ || shared_->draining; }

  void write(std::string bytes) {
    unsent_ += std::ssize(bytes);
    queue_.push_back(std::move(bytes));
    if (streaming_ && does_not_read()) return close();
    if (being_sent_.empty()) write_all();
  }
  /// More waits than may, and has for longer than a busy machine takes to hand it over.
  bool does_not_read() const {
    const int64_t most = limits().unread_bytes;
    const auto waited = std::chrono::steady_clock::now() - write_began_;
    return unsent_ > 16 * most || (unsent_ > most && waited > kHandOver);
  }
  /// All that waits at once: a piece at a time, a fast model would be ahead of a client that reads.
  void write_all() {
    write_began_ = std::chrono::steady_clock::now();
    stream_.expires_after(milliseconds(limits().write_seconds));
    being_sent_.swap(queue_);
    std::vector<asio::const_buffer> pieces;
    for (const std::string& piece : being_sent_) pieces.push_back(asio::buffer(piece));
    asio::async_write(stream_, pieces, [self = shared_from_this()](error_code error, size_t bytes) {
      if (error) return self->close();
      self->unsent_ -= static_cast<int64_t>(bytes);
      self->being_sent_.clear();
      if (!self->queue_.empty()) return self->write_all();
      if (self->complete_) self->answered();
    });
  }

  void answered() {
    complete_ = streaming_ = false;
    held_ = nullptr;
    gone_ = nullptr;
    left_ = nullptr;
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
    if (left_ != nullptr) *left_ = true;
    if (auto gone = std::exchange(gone_, nullptr)) gone();
    exchange_ = nullptr;
    held_ = nullptr;
  }

  std::shared_ptr<HttpServer::Shared> shared_;
  beast::tcp_stream stream_;
  asio::steady_timer timer_;  // of the request, or of the time between two
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::string client_, network_;
  std::string why_crowded_;  // a limit that it exceeds; empty: none
  bool from_loopback_ = false, to_loopback_ = false;
  bool late_ = false, busy_ = false, watching_ = false;
  // Of the request that is being answered:
  OneExchange* exchange_ = nullptr;
  std::function<void()> gone_;
  std::shared_ptr<std::atomic<bool>> left_;
  std::shared_ptr<const void> held_;
  bool closes_ = false, is_head_ = false, chunked_ = false, streaming_ = false, complete_ = false;
  std::vector<std::string> queue_, being_sent_;
  std::chrono::steady_clock::time_point write_began_{};
  int64_t unsent_ = 0;
};

/// Passes what any thread says on to the sockets' thread.
class Connection::OneExchange : public Exchange,
                                public std::enable_shared_from_this<Connection::OneExchange> {
 public:
  explicit OneExchange(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)), left_(connection_->left_) {}

  bool gone() const override { return *left_; }

  void respond(HttpResponse response) override {
    post([response = std::move(response)](Connection& c) mutable {
      c.write_response(std::move(response));
    });
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
    asio::post(connection_->shared_->io,
               [self = shared_from_this(), action = std::move(action)]() mutable {
                 if (self->connection_->exchange_ != self.get()) return;
                 try {
                   action(*self->connection_);
                 } catch (...) {  // out of memory, say: half an answer is none
                   self->connection_->close();
                   throw;
                 }
               });
  }
  std::shared_ptr<Connection> connection_;
  const std::shared_ptr<std::atomic<bool>> left_;
};

void Connection::handle() {
  timer_.cancel();
  auto message = parser_->release();
  closes_ = !message.keep_alive() || crowded();
  is_head_ = message.method() == http::verb::head;
  chunked_ = message.version() == 11;
  RequestTarget target = split_target(text(message.target()));
  HttpRequest request{.method = is_head_ ? "GET" : text(message.method_string()),
                      .target = std::move(target.path),
                      .body = std::move(message.body()),
                      .authorization = text(message[http::field::authorization]),
                      .origin = text(message[http::field::origin]),
                      .host = target.authority.value_or(text(message[http::field::host])),
                      .client = client_,
                      .to_loopback = to_loopback_};
  left_ = std::make_shared<std::atomic<bool>>(false);
  auto exchange = std::make_shared<OneExchange>(shared_from_this());
  exchange_ = exchange.get();
  watch();
  try {
    shared_->handler(std::move(request), std::move(exchange));
  } catch (const std::exception& error) {  // out of memory, say
    refuse(500, error.what());
  }
}

void start_connection(std::shared_ptr<HttpServer::Shared> shared, asio::ip::tcp::socket socket) {
  const auto connection = std::make_shared<Connection>(std::move(shared), std::move(socket));
  try {
    connection->start();
  } catch (...) {
    connection->close();
    throw;
  }
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
