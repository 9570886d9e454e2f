#pragma once
// Every rank's part of the batches joined: each data shard reads, preprocesses and packs its rows
// alone, and the model's inputs, a few bytes a token, are gathered so that every rank sees what
// depends on the whole batch (normalisation of the loss, metrics, dropout's rows).

#include <memory>

#include "data/batches.h"
#include "runtime/mesh/collectives.h"

namespace quintet {

class WholeBatches final : public data::BatchSource {
 public:
  /// `shards`: the ranks that have the other parts, in the order of their rows.
  WholeBatches(std::unique_ptr<data::BatchSource> part, Group shards)
      : part_(std::move(part)), shards_(shards.on_host()) {}
  std::optional<data::Batch> next() override;
  std::string position() const override { return part_->position(); }
  void restore(std::string_view position) override { part_->restore(position); }

 private:
  std::unique_ptr<data::BatchSource> part_;
  Group shards_;
};

}  // namespace quintet
