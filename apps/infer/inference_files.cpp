#include "apps/infer/inference_files.h"

#include <nlohmann/json.hpp>

#include "runtime/base/files/atomic_file.h"
#include "runtime/base/files/posix_file.h"
#include "runtime/base/formats/json.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

/// Of a file that is whole once its marker is there.
fs::path marker_of(const fs::path& file) { return file.string() + ".COMPLETED"; }

}  // namespace

InferenceFiles::InferenceFiles(const fs::path& output_dir, Name name)
    : origin_(std::move(name.origin)) {
  std::replace(name.task.begin(), name.task.end(), '/', '_');
  const std::string shard = fmt::format("{:05}-of-{:05}", name.shard.index, name.shard.num_shards);
  folder_ = output_dir / fmt::format("tmp-{}-{}", name.task, shard);
  origin_file_ = output_dir / fmt::format(".{}-{}-{}.origin", name.task, name.mode, shard);
  result_ = output_dir / fmt::format("{}-{}.{}-{}", name.task, name.mode, name.extension, shard);
}

fs::path InferenceFiles::chunk_path(int64_t chunk) const {
  return folder_ / fmt::format("{}-chunk{:05}", result_.filename().string(), chunk);
}

bool InferenceFiles::is_complete(bool merged) const {
  if (!is_there(marker_of(result_))) return false;
  const std::string origin = is_there(origin_file_) ? read_file(origin_file_) : origin_;
  QT_CHECK(origin == origin_,
           "{} was answered with {}\nnow it is {}\nremove {}, or name another output_dir",
           result_.string(), origin, origin_, marker_of(result_).string());
  if (merged) remove_tree(folder_);
  return true;
}

std::string InferenceFiles::start() {
  lock_.emplace(folder_);
  const fs::path file = folder_ / "input.ckpt";
  if (!is_there(file)) return "";
  const Json place = Json::read(file);
  QT_CHECK(place["origin"].as_string() == origin_,
           "{} was begun with {}\nnow it is {}\nremove the folder, or name another output_dir",
           folder_.string(), place["origin"].as_string(), origin_);
  for (int64_t chunk = 0; chunk < place["chunks"].as_int(); ++chunk)
    if (!has_chunk(chunk)) {
      fmt::print(stderr, "{} is not there: all begins anew\n", chunk_path(chunk).string());
      return "";
    }
  return place.raw().dump();
}

std::pair<int64_t, data::Position> InferenceFiles::parse_place(const std::string& text) {
  const Json place = Json::parse(text, "input.ckpt");
  return {place["chunks"].as_int(), place["position"].as_ints()};
}

bool InferenceFiles::has_chunk(int64_t chunk) const {
  return is_there(marker_of(chunk_path(chunk))) && is_there(chunk_path(chunk));
}

void InferenceFiles::write_chunk(int64_t chunk, const std::function<void(const fs::path&)>& write,
                                 const data::Position& position) const {
  write(chunk_path(chunk));
  atomic_write_file(marker_of(chunk_path(chunk)), "");
  const nlohmann::ordered_json place = {
      {"origin", origin_}, {"chunks", chunk + 1}, {"position", position}};
  atomic_write_file(folder_ / "input.ckpt", place.dump() + "\n");
}

void InferenceFiles::join(int64_t chunks) const {
  const fs::path merged = folder_ / "merged";
  remove_tree(merged);
  File file = File::create_new(merged);
  int64_t size = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::string lines = read_file(chunk_path(chunk));
    file.write_at(size, std::as_bytes(std::span(lines)));
    size += std::ssize(lines);
  }
  file.sync();
  file.close_checked();
  rename_path(merged, result_);
}

void InferenceFiles::complete(int64_t chunks, bool merge, const Merge& own_merge) {
  if (merge && own_merge)
    own_merge(result_, folder_);
  else if (merge)
    join(chunks);
  // Made in the folder, so that a kill leaves nothing beside the results.
  atomic_write_file(origin_file_, origin_);
  atomic_write_file(folder_ / "completed", "");
  rename_path(folder_ / "completed", marker_of(result_));
  sync_folder(result_.parent_path());
  if (!merge) return;
  lock_.reset();
  remove_tree(folder_);
}

}  // namespace quintet
