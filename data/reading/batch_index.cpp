#include "data/reading/batch_index.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/base/formats/json.h"
#include "runtime/base/process/messages.h"

namespace quintet::data {
namespace {

/// The batch number of a position of the same data; -1: it is another's, or damaged.
int64_t batch_of(const std::string& position, const Json& like) {
  try {
    const Json json = Json::parse(position);
    for (const char* key : {"data", "batch_size", "files", "examples"})
      if (json[key].raw() != like[key].raw()) return -1;
    return json["batches"].as_int();
  } catch (const Error&) {
    return -1;
  }
}

}  // namespace

std::string BatchIndex::before(int64_t batch, const std::string& like) const {
  const Json data = Json::parse(like, "data position");
  std::string best;
  int64_t best_batch = -1;
  std::ifstream in(file_);
  for (std::string line; std::getline(in, line);) {
    const int64_t found = batch_of(line, data);
    if (found > batch || found <= best_batch) continue;
    best_batch = found;
    best = line;
  }
  return best;
}

void BatchIndex::add(int64_t batch, const std::string& position) {
  if (!due(batch) || batch <= last_) return;
  if (last_ < 0) {  // what an earlier run knew is not written again
    const std::string known = before(batch, position);
    if (!known.empty() && batch_of(known, Json::parse(position)) == batch) return;
  }
  last_ = batch;
  std::ofstream out(file_, std::ios::app);
  out << position + "\n" << std::flush;
  if (out.good()) return;
  print_warning("{}: cannot write; jumps to a batch will pass over the data again", file_.string());
  file_.clear();
}

}  // namespace quintet::data
