// Names that clients choose: hosts, targets, labels of metrics.

#include <gtest/gtest.h>

#include "apps/serve/http/host_names.h"
#include "apps/serve/metrics.h"
#include "runtime/base/check.h"

namespace quintet::serve {
namespace {

TEST(HostNames, AreReadAsHttpWritesThem) {
  for (const auto& [host, name] :
       std::vector<std::pair<std::string, std::string>>{{"localhost", "localhost"},
                                                        {"LocalHost.:8000", "localhost"},
                                                        {"a.example:", "a.example"},
                                                        {"127.0.0.1:80", "127.0.0.1"},
                                                        {"[::1]:8000", "::1"},
                                                        {"[FE80::1%eth0]", "fe80::1%eth0"},
                                                        {"[::ffff:10.0.0.1]", "::ffff:10.0.0.1"}})
    EXPECT_EQ(host_name(host), name) << host;
  for (const std::string host :
       {"", ".", ":80", "a b", "a,b", "user@a", "a/b", "::1", "[::1", "[a.example]", "[1.2.3.4]",
        "[]", "[::1]80", "a:80:80", "a:x", "a:123456", "a\tb", "caf\xc3\xa9", "a%2e"})
    EXPECT_EQ(host_name(host), std::nullopt) << host;
}

TEST(HostNames, NamesOfOthersAreRefused) {
  const HostNames none;
  for (const char* host : {"localhost:1", "app.LOCALHOST", "127.0.0.1", "192.168.1.7:80",
                           "[::1]:8000", "[fe80::1%25eth0]", "0.0.0.0"})
    EXPECT_TRUE(none.allow(host)) << host;
  for (const char* host :
       {"", "evil.example", "localhost.evil.example", "notlocalhost", "127.0.0.1.evil.example",
        "1.2.3", "2130706433", "0x7f.1", "evil.example:8000", "evil.example."})
    EXPECT_FALSE(none.allow(host)) << host;
  const HostNames some({"Models.example.org", "*.lab"});
  EXPECT_TRUE(some.allow("models.EXAMPLE.org.:443"));
  EXPECT_TRUE(some.allow("a.b.lab"));
  EXPECT_TRUE(some.allow("localhost"));
  for (const char* host :
       {"xmodels.example.org", "a.models.example.org", "lab", "evillab", "a.lab.evil.example"})
    EXPECT_FALSE(some.allow(host)) << host;
  EXPECT_TRUE(HostNames({"*"}).allow("evil.example"));
  EXPECT_FALSE(HostNames({"*"}).allow("evil example"));
  for (const std::string name : {"", "http://a", "a:80", "a b", "*.", "a.*"})
    EXPECT_THROW(HostNames({name}), Error) << name;
}

TEST(RequestTarget, MayNameItsHost) {
  const auto parts = [](std::string_view target) {
    const RequestTarget split = split_target(target);
    return std::pair(split.path, split.authority.value_or("none"));
  };
  using Parts = std::pair<std::string, std::string>;
  EXPECT_EQ(parts("/v1/models?a=http://b/"), Parts("/v1/models", "none"));
  EXPECT_EQ(parts("HTTP://a:80/v1/models?x"), Parts("/v1/models", "a:80"));
  EXPECT_EQ(parts("https://[::1]?x"), Parts("/", "[::1]"));
  EXPECT_EQ(parts("http://"), Parts("/", ""));
  EXPECT_EQ(parts("*"), Parts("*", "none"));
  EXPECT_EQ(parts("a:80"), Parts("a:80", "none"));
}

TEST(ServerMetrics, LabelsAreEscapedAndNobodyInventsThem) {
  EXPECT_EQ(sample("x", {{"a", "1\"2\\3\n4"}, {"b", "c"}}, "5"),
            "quintet_x{a=\"1\\\"2\\\\3\\n4\",b=\"c\"} 5\n");
  EXPECT_EQ(sample("x", {}, "5"), "quintet_x 5\n");
  ServerMetrics metrics;
  for (const std::string target :
       {"/v1/x\",status=\"200\"} 1", "/v1/", "/a", "", "/v1/scores", "/v1/models/a\n"})
    metrics.answered(target, 404, 0);
  metrics.answered("/v1/score", 200, 0);
  const std::string text = metrics.text({}, 0);
  for (const char* line : {"quintet_requests_total{endpoint=\"other\",status=\"404\"} 5\n",
                           "quintet_requests_total{endpoint=\"/v1/models\",status=\"404\"} 1\n",
                           "quintet_requests_total{endpoint=\"/v1/score\",status=\"200\"} 1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

}  // namespace
}  // namespace quintet::serve
