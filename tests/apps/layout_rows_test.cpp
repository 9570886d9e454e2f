// Layouts by name, their table and page, clusters and what their collectives cost.

#include <gtest/gtest.h>

#include <regex>

#include "apps/plan/cluster.h"
#include "apps/plan/layout_report.h"
#include "apps/plan/layouts.h"
#include "runtime/base/formats/json.h"
#include "tests/harness/refusal.h"

namespace quintet {
namespace {

TEST(Layouts, EveryFactorisationWithEveryTableThatMatters) {
  std::vector<std::string> names;
  for (const TrainingLayout& layout : all_layouts(4)) names.push_back(layout.name());
  EXPECT_EQ(names, (std::vector<std::string>{"4x1:a1p1", "4x1:a1p2", "r2x2x1:a1p2", "2x2:a1p1",
                                             "2x2:a1p2", "2x2:a2p1", "2x2:a2p2", "2x2:a1p1s",
                                             "2x2:a1p2s", "1x4:a1p1", "1x4:a2p1", "1x4:a1p1s"}));
  EXPECT_EQ(all_layouts(1).size(), 1U);
  // 1, 2, 3, 4, 6, 12 model ranks: 2 + 4 * 6 + 3; replicas: 4 of 12 data ranks, 2 of 6, 1 of 4
  EXPECT_EQ(all_layouts(12).size(), 36U);
}

TEST(Layouts, ModelsWithExpertsHaveAThirdAxis) {
  std::vector<std::string> names;
  for (const TrainingLayout& layout : all_layouts(4, 6)) {  // 4 does not divide 6 experts
    EXPECT_EQ(layout.ranks(), 4);
    EXPECT_EQ(parse_layouts(layout.name(), 4, 6), std::vector{layout});
    names.push_back(layout.name());
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "4x1x1:a1p1", "4x1x1:a1p2", "r2x2x1x1:a1p2", "2x1x2:a1p1", "2x1x2:a1p2",
                       "2x2x1:a1p1", "2x2x1:a1p2", "2x2x1:a2p1", "2x2x1:a2p2", "2x2x1:a1p1s",
                       "2x2x1:a1p2s", "1x2x2:a1p1", "1x2x2:a2p1", "1x2x2:a1p1s", "1x4x1:a1p1",
                       "1x4x1:a2p1", "1x4x1:a1p1s"}));
  const TrainingLayout layout = parse_layouts("2x3x4:a1p2", 24, 8)[0];
  EXPECT_EQ(layout.mesh(), (std::vector<MeshAxis>{{"data", 2}, {"expert", 4}, {"model", 3}}));
  EXPECT_EQ(parse_layouts("2x2:a1p2", 4, 6)[0].name(), "2x2x1:a1p2");
  EXPECT_NE(refusal([] { parse_layouts("2x1x2", 4); }).find("has no experts"), std::string::npos);
  EXPECT_NE(refusal([] { parse_layouts("2x2x2", 4, 6); }).find("needs 8 ranks"), std::string::npos);
}

TEST(Layouts, AreReadByName) {
  const auto layouts = parse_layouts("2x2:a2p1,4x1", 4);
  ASSERT_EQ(layouts.size(), 2U);
  EXPECT_EQ(layouts[0], (TrainingLayout{2, 2, 2, 1}));
  EXPECT_EQ(layouts[1], (TrainingLayout{4, 1, 1, 1}));
  const TrainingLayout sequence = parse_layouts("2x2:a1p2s", 4)[0];
  EXPECT_TRUE(sequence.sequence);
  EXPECT_EQ(sequence.name(), "2x2:a1p2s");
  EXPECT_NE(refusal([] { parse_layouts("2x2:a2p2s", 4); }).find("a1p2s"), std::string::npos);
  const TrainingLayout context = parse_layouts("2x2:a1p2c", 4)[0];
  EXPECT_TRUE(context.context && !context.sequence);
  EXPECT_EQ(context.name(), "2x2:a1p2c");
  EXPECT_NE(refusal([] { parse_layouts("2x2:a2p2c", 4); }).find("a1p2c"), std::string::npos);
  const TrainingLayout replicas = parse_layouts("r4x2x3:a1p2", 24)[0];
  EXPECT_EQ(replicas.name(), "r4x2x3:a1p2");
  EXPECT_EQ(replicas.mesh(), (std::vector<MeshAxis>{{"replica", 4}, {"data", 2}, {"model", 3}}));
  EXPECT_EQ(replicas.rules().front().second, (MeshAxes{"replica", "data"}));
  EXPECT_NE(refusal([] { parse_layouts("2x2:a3p1", 4); }).find("'2x2:a3p1'"), std::string::npos);
  EXPECT_NE(refusal([] { parse_layouts("2x2,", 4); }).find("'' is not a layout"),
            std::string::npos);
  EXPECT_NE(
      refusal([] { parse_layouts("2x4:a1p1", 4); }).find("2x4:a1p1 needs 8 ranks, there are 4"),
      std::string::npos);
}

LayoutRow row(const TrainingLayout& layout, double seconds) {
  LayoutRow row{.layout = layout};
  row.seconds = seconds;
  row.compute = 0.75 * seconds;
  row.exposed = 0.25 * seconds;
  row.tokens_per_second = 1000 / seconds;
  row.traffic[{"all_reduce", "data"}] = {3, 1 << 20};
  row.memory = {1000, 2000, 0, 500, 0};
  return row;
}

std::vector<LayoutRow> rows() {
  std::vector<LayoutRow> rows{row({4, 1}, 2), row({2, 2}, 1), row({1, 4}, 0.5),
                              row({2, 2, 2, 2}, 3)};
  rows[2].fits = false;
  rows[3].refused = "axis 'a' <of> size 6 & 'model' of size 4";
  return rows;
}

TEST(Layouts, TheFastestThatRunsAndFitsIsMarked) {
  const auto all = rows();
  EXPECT_EQ(best_of(all), &all[1]);
  const std::string table = layout_table(all);
  EXPECT_TRUE(std::regex_search(table, std::regex("2x2:a1p1 [^\n]* \\*\n")));
  EXPECT_TRUE(std::regex_search(table, std::regex("1x4:a1p1 [^\n]* too large\n")));
  EXPECT_NE(table.find("2x2:a2p2      cannot run: axis 'a'"), std::string::npos);
  EXPECT_EQ(std::count(table.begin(), table.end(), '*'), 1);
}

TEST(Layouts, PinnedMemoryIsToldWhereThereIsSome) {
  LayoutRow offloaded = row({1, 1}, 1);
  EXPECT_FALSE(Json::parse(layout_json(offloaded, false, {})).has("pinned_bytes"));
  EXPECT_EQ(layout_table({offloaded}).find("pinned"), std::string::npos);
  offloaded.pinned_bytes = 3 << 20;
  EXPECT_EQ(Json::parse(layout_json(offloaded, false, {}))["pinned_bytes"].as_int(), 3 << 20);
  EXPECT_NE(layout_table({offloaded}).find(" GiB pinned on the host\n"), std::string::npos);
}

TEST(Layouts, ARowIsOneJsonObject) {
  const Json json = Json::parse(layout_json(rows()[1], true, {{"bench", "layouts"}}));
  EXPECT_EQ(json["bench"].as_string(), "layouts");
  EXPECT_EQ(json["seconds_per_step"].as_double(), 1);
  EXPECT_EQ(json["sent"][0]["bytes"].as_int(), 1 << 20);
  EXPECT_EQ(json["peak_bytes"]["optimizer state"].as_int(), 500);
  EXPECT_EQ(json["peak_bytes"]["all"].as_int(), 3500);
  EXPECT_TRUE(json["best"].as_bool());
  const Json refused = Json::parse(layout_json(rows()[3], false, {}));
  EXPECT_NE(refused["refused"].as_string().find("size 6"), std::string::npos);
  EXPECT_FALSE(refused.has("mfu"));
}

TEST(Layouts, ThePageDrawsEveryLayoutAndNeedsNothingElse) {
  const std::string page = layout_report("Layouts", {{"device", "a <cpu>"}}, rows(),
                                         {{.name = "run",
                                           .source = "paper",
                                           .unit = "sequences/s",
                                           .published = 100,
                                           .planned = 120,
                                           .refused = {}}});
  const std::regex bar("<rect class=\"dot c0\"[^>]*/>");
  EXPECT_EQ(std::distance(std::sregex_iterator(page.begin(), page.end(), bar), {}),
            3 + 1);  // legend
  EXPECT_NE(page.find("<tr class=\"best\"><th>2x2:a1p1</th>"), std::string::npos);
  EXPECT_NE(page.find("a &lt;cpu&gt;"), std::string::npos);
  EXPECT_NE(page.find("&lt;of&gt; size 6 &amp;"), std::string::npos);
  EXPECT_NE(page.find("<td>+20 %</td>"), std::string::npos);
  EXPECT_FALSE(std::regex_search(page, std::regex("(src|href)=|@import|url\\(")));
}

constexpr const char* kCluster =
    R"({"devices": 16, "devices_per_host": 4, "memory_gib": 1, "tflops": 1, "memory_gb_per_s": 100,
        "link_gb_per_s": 10, "link_us": 1, "network_gb_per_s_per_host": 8, "network_us": 5)";

TEST(Clusters, CollectivesUseLinksOrTheirShareOfTheNetwork) {
  const Cluster cluster = cluster_of(Json::parse(std::string(kCluster) + "}"));
  EXPECT_NEAR(cluster.collective_time("all_gather", 1e10, {0, 1, 2, 3}).seconds, 1 + 3e-6, 1e-9);
  // One device of each host: a quarter of its 8 GB/s.
  EXPECT_NEAR(cluster.collective_time("all_reduce", 1e10, {0, 4, 8, 12}).seconds, 5 + 6 * 5e-6,
              1e-9);
  // All devices of two hosts: all of it.
  EXPECT_NEAR(cluster.collective_time("all_gather", 1e10, {0, 1, 2, 3, 4, 5, 6, 7}).seconds,
              1.25 + 6 * 1e-6 + 5e-6, 1e-9);
  EXPECT_EQ(cluster.job().hosts.size(), 16U);
  EXPECT_EQ(cluster.job().memory_bytes, static_cast<int64_t>(0.92 * (1 << 30)));
}

// Hops that follow each other, of 16 hosts: a ring has 15, or 30 of a sum; a tree 4, or 8.
TEST(Clusters, FewBytesTakeTreesAndManyRings) {
  Cluster cluster = cluster_of(Json::parse(std::string(kCluster) + "}"));
  cluster.devices = 64;
  std::vector<int> one_a_host, all;
  for (int rank = 0; rank < 64; ++rank) {
    all.push_back(rank);
    if (rank % 4 == 0) one_a_host.push_back(rank);
  }
  const auto seconds = [&](const char* collective, double bytes, const std::vector<int>& ranks) {
    return cluster.collective_time(collective, bytes, ranks).seconds;
  };
  EXPECT_NEAR(seconds("all_gather", 0, one_a_host), (4 * 5 + 16 * 2.8) * 1e-6, 1e-12);
  EXPECT_NEAR(seconds("reduce_scatter", 2e9, one_a_host), 1 + 15 * 5e-6, 1e-12);
  EXPECT_NEAR(seconds("all_reduce", 0, one_a_host), 8 * 5e-6, 1e-12);
  EXPECT_NEAR(seconds("all_reduce", 2e9, one_a_host), 1 + 30 * 5e-6, 1e-12);
  // Of four ranks a host only the sum has a tree.
  EXPECT_NEAR(seconds("all_gather", 0, all), (48 + 15 * 5) * 1e-6, 1e-12);
  EXPECT_NEAR(seconds("all_reduce", 0, all), (2 * 3 + 8 * 5) * 1e-6, 1e-12);
}

TEST(Clusters, WhatAFileSaysWrongIsNamed) {
  const auto message = [](const std::string& text) {
    return refusal([&] { cluster_of(Json::parse(text, "my.json")); });
  };
  const auto says = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(says(message(std::string(kCluster) + R"(, "tflop": 1})"), "did you mean 'tflops'"));
  EXPECT_TRUE(says(message(R"({"devices": 4})"), "'link_gb_per_s' is missing"));
  EXPECT_TRUE(says(message(std::string(kCluster) + R"(, "op_us": -1})"), "op_us"));
  EXPECT_TRUE(says(message(std::string(kCluster) + R"(, "matmul_efficiency": 1.5})"), "up to 1"));
  EXPECT_TRUE(says(message(std::string(kCluster) + R"(, "op_us": "fast"})"), "op_us"));
  EXPECT_TRUE(says(message(R"({"devices": 1.5, "memory_gib": 1, "tflops": 1, "memory_gb_per_s": 1,
                               "link_gb_per_s": 1})"),
                   "whole numbers"));
  EXPECT_TRUE(says(message(R"({"devices": 8, "memory_gib": 1, "tflops": 1, "memory_gb_per_s": 1,
                               "link_gb_per_s": 1})"),
                   "'network_gb_per_s_per_host' is missing"));
}

}  // namespace
}  // namespace quintet
