// What the sockets' side does when the other side fails. Strange clients:
// tests/e2e/serve_fault_test.py.

#include "apps/serve/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace quintet::serve {
namespace {

/// All that the server on this port says to one request, until it closes.
std::string said(uint16_t port, const std::string& target) {
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const std::string request = "GET " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(send(connection, request.data(), request.size(), 0), std::ssize(request));
  std::string all;
  char part[4096];
  for (ssize_t n; (n = recv(connection, part, sizeof part, 0)) > 0;)
    all.append(part, static_cast<size_t>(n));
  close(connection);
  return all;
}

TEST(HttpServer, AHandlerThatThrowsIsAnErrorOfItsRequest) {
  HttpServer server({.port = 0}, [](HttpRequest request, std::shared_ptr<Exchange> exchange) {
    if (request.target == "/bad") throw std::bad_alloc();
    exchange->respond({.body = "good\n"});
  });
  std::thread sockets([&] { server.run(); });
  EXPECT_EQ(said(server.port(), "/bad").substr(0, 12), "HTTP/1.1 500");
  EXPECT_EQ(said(server.port(), "/good").substr(0, 12), "HTTP/1.1 200");
  for (int i = 0; i < 2000 && server.connections() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(server.connections(), 0);
  server.drain(5);
  sockets.join();
}

}  // namespace
}  // namespace quintet::serve
