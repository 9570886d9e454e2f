#pragma once
// Batches for the program that starts this one: `quintet data batches`, which libquintet.so (apps/library) reads.

#include <string>

#include "data/batches/batches.h"
#include "data/show/show.h"

namespace CLI {
class App;
}

namespace quintet {

struct BatchFlags {
  int64_t batch_size = 8, epochs = 1;
  std::string converter;

  void add_to(CLI::App& app);
  /// Batches of a task with the lengths, packing and order of `show`. Throws what data::Batches throws.
  void send(const std::string& name, const data::Provider& task, const data::ShowOptions& show,
            int file) const;
};

/// Throws a usage error for flags of `quintet data` that have no effect on `what`: "show", "list" or "batches".
void refuse_flags_of_others(const CLI::App& app, std::string_view what);

/// Writes to `file` a frame that says what is in every batch ({"version": .., "features": [{"name", "dtype", "shape",
/// "bytes"}, ..]}), then one for each, its arrays in that order; the status is the number of rows with examples. At the end
/// of the data, one without request and body, alone for a data set without a batch. Until then, or until nobody reads.
void send_batches(data::BatchSource& batches, int file);

}  // namespace quintet
