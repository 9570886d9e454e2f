#include "apps/train/non_finite_report.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/base/files/atomic_file.h"
#include "runtime/base/formats/crc32c.h"
#include "runtime/base/formats/json.h"
#include "runtime/trainer/batch_rows.h"

namespace quintet {
namespace {

constexpr size_t kSteps = 10;  // as many as end a run
constexpr int64_t kRows = 8;   // enough to recognise a batch by

nlohmann::ordered_json described(const HostArray& array) {
  nlohmann::ordered_json out = {{"shape", array.shape},
                                {"dtype", name_of(array.dtype)},
                                {"crc32c", fmt::format("{:08x}", crc32c(array.bytes))}};
  if (array.dtype != DType::i32 || array.elements() == 0 || array.shape.empty()) return out;
  const auto values = array.as<int32_t>();
  const int64_t rows = array.shape[0];
  nlohmann::ordered_json first = nlohmann::ordered_json::array();
  for (int64_t row = 0; row < std::min(rows, kRows); ++row) {
    const auto part = values.subspan(values.size() / rows * row, values.size() / rows);
    first.push_back(std::vector<int32_t>(part.begin(), part.end()));
  }
  out["first_rows"] = std::move(first);
  return out;
}

}  // namespace

void NonFiniteReport::add(const BadStep& bad, const HostArrays& batch) {
  nlohmann::ordered_json features = nlohmann::ordered_json::object();
  for (const auto& [name, array] : batch)
    if (name != kStepCounts) features[name] = described(array);
  const nlohmann::ordered_json step = {{"step", bad.step},
                                       {"tensor", bad.tensor},
                                       {"loss", json_number(bad.loss)},
                                       {"data_position", bad.data_position},
                                       {"features", std::move(features)}};
  steps_.emplace_back(bad.step, step.dump());
  if (steps_.size() > kSteps) steps_.pop_front();
}

std::string NonFiniteReport::text() const {
  std::vector<std::string_view> steps;
  for (const auto& [number, json] : steps_) steps.push_back(json);
  return fmt::format("[{}]", fmt::join(steps, ","));
}

std::filesystem::path NonFiniteReport::write(const std::filesystem::path& model_dir,
                                             const std::vector<std::string>& shards) const {
  const int64_t newest = steps_.empty() ? 0 : steps_.back().first;
  const auto file = model_dir / fmt::format("not_finite_{}.json", newest);
  auto steps = nlohmann::ordered_json::parse(text());
  if (shards.size() > 1) {
    for (auto& step : steps) step["features"] = nlohmann::ordered_json::array();
    for (const std::string& shard : shards) {
      const auto of_shard = nlohmann::ordered_json::parse(shard);
      for (size_t i = 0; i < steps.size(); ++i)
        steps[i]["features"].push_back(of_shard[i]["features"]);
    }
  }
  atomic_write_file(file, nlohmann::ordered_json{{"steps", std::move(steps)}}.dump() + "\n");
  return file;
}

}  // namespace quintet
