// What the sockets' side does when the other side fails. Strange clients:
// tests/e2e/serve_fault_test.py.

#include "apps/serve/http/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "tests/harness/wait_for.h"

namespace quintet::serve {
namespace {

/// A connection to the server on this port.
class Client {
 public:
  explicit Client(uint16_t port, int receive_bytes = 0) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (receive_bytes > 0)
      setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { close(socket_); }

  void ask(const std::string& target, const std::string& headers = "") {
    const std::string request = "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
    EXPECT_EQ(send(socket_, request.data(), request.size(), 0), std::ssize(request));
  }
  /// Until what was said ends so, or the server closes.
  std::string said(const std::string& end = "\n") {
    std::string all;
    char part[4096];
    while (!all.ends_with(end)) {
      const ssize_t n = recv(socket_, part, sizeof part, 0);
      if (n <= 0) break;
      all.append(part, static_cast<size_t>(n));
    }
    return all;
  }

 private:
  int socket_;
};

/// All that the server on this port says to one request, until it closes.
std::string said(uint16_t port, const std::string& target) {
  Client client(port);
  client.ask(target, "Connection: close\r\n");
  return client.said("nothing ends so");
}

TEST(HttpServer, AHandlerThatThrowsIsAnErrorOfItsRequest) {
  HttpServer server({.port = 0}, [](HttpRequest request, std::shared_ptr<Exchange> exchange) {
    if (request.target == "/bad") throw std::bad_alloc();
    exchange->respond({.body = "good\n"});
  });
  std::thread sockets([&] { server.run(); });
  EXPECT_EQ(said(server.port(), "/bad").substr(0, 12), "HTTP/1.1 500");
  EXPECT_EQ(said(server.port(), "/good").substr(0, 12), "HTTP/1.1 200");
  EXPECT_TRUE(testing::wait_for([&] { return server.connections() == 0; }));
  server.drain(5);
  sockets.join();
}

TEST(HttpServer, AnAnswerThatComesTooLateIsNotTakenForTheNext) {
  std::shared_ptr<Exchange> first;
  HttpServer server({.port = 0}, [&](HttpRequest request, std::shared_ptr<Exchange> exchange) {
    if (request.target == "/second") first->respond({.body = "stray\n"});
    exchange->respond({.body = request.target + "\n"});
    first = std::move(exchange);
  });
  std::thread sockets([&] { server.run(); });
  Client client(server.port());
  for (const std::string target : {"/first", "/second", "/third"}) {
    client.ask(target);
    const std::string answer = client.said();
    EXPECT_TRUE(answer.ends_with("\r\n\r\n" + target + "\n")) << answer;
  }
  first = nullptr;
  server.drain(5);
  sockets.join();
}

TEST(HttpServer, WhoAsksAfterTheClientHasLeftHearsItAtOnce) {
  std::atomic<int> gone = 0;
  std::shared_ptr<Exchange> kept;
  HttpServer server({.port = 0}, [&](HttpRequest, std::shared_ptr<Exchange> exchange) {
    exchange->on_gone([&] { ++gone; });
    kept = std::move(exchange);
  });
  std::thread sockets([&] { server.run(); });
  Client(server.port()).ask("/");
  EXPECT_TRUE(testing::wait_for([&] { return gone == 1; }));
  kept->respond({.body = "to nobody\n"});
  kept->on_gone([&] { ++gone; });
  EXPECT_TRUE(testing::wait_for([&] { return gone == 2; }));
  kept = nullptr;
  EXPECT_TRUE(testing::wait_for([&] { return server.connections() == 0; }));
  server.drain(5);
  sockets.join();
}

// docs/reference/faults.md S2. Without a limit of its own the kernel takes megabytes of a stream.
TEST(HttpServer, OfAStreamThatNobodyReadsLittleIsHeld) {
  constexpr int64_t kPiece = 8 << 10, kKernel = 2 * (128 << 10);  // it doubles what it is told
  const HttpLimits limits{.unread_bytes = 64 << 10};
  std::atomic<bool> gone = false;
  std::atomic<int64_t> sent = 0;
  std::thread writer;
  HttpServer server({.port = 0, .limits = limits},
                    [&](HttpRequest, std::shared_ptr<Exchange> exchange) {
                      exchange->on_gone([&] { gone = true; });
                      exchange->begin_stream("text/plain");
                      writer = std::thread([&, exchange = std::move(exchange)] {
                        for (; !gone && sent < (16 << 20); sent += kPiece) {
                          exchange->send(std::string(kPiece, 'x'));
                          // delay: so that the socket keeps up
                          std::this_thread::sleep_for(std::chrono::milliseconds(2));
                        }
                      });
                    });
  std::thread sockets([&] { server.run(); });
  Client client(server.port(), 4096);
  client.ask("/");
  EXPECT_TRUE(testing::wait_for([&] { return gone.load(); }));
  constexpr int64_t kOnItsWay = 128 << 10;  // the client's share, and pieces sent before it showed
  EXPECT_LE(sent, limits.unread_bytes + kKernel + kOnItsWay);
  writer.join();
  server.drain(5);
  sockets.join();
}

}  // namespace
}  // namespace quintet::serve
