#pragma once
// Random keys of a step that is recorded once and repeated (kernels/device.h): kernels find them in
// device memory, where each launch of the recording puts those of its step.
//
//   StepKeys keys(step_key);
//   { StepKeys::Recording recording(keys); ... StepKeys::child(step_key, 7) ...; launches }
//   keys.set(next_step_key);  // queued before the next launch of what was recorded

#include <map>
#include <optional>
#include <vector>

#include "kernels/device.h"
#include "runtime/base/threefry.h"

namespace quintet {

class StepKeys {
 public:
  explicit StepKeys(Key step);

  /// Children are remembered and kernels that are launched take them from memory.
  using Recording = ContextMember<&ExecutionContext::keys>;
  /// A place in the network, as Flax's keys of modules go: of a scanned stack, each layer has its own split of the step's.
  /// Without an id: that which ids are folded into.
  struct Place {
    std::optional<uint32_t> id;
    std::optional<uint32_t> layer = {};
    Key key(Key step) const {
      const Key whole = layer ? split_at(step, *layer) : step;
      return id ? fold_in(whole, *id) : whole;
    }
  };
  /// place.key(step); the only keys of kernels that may be recorded.
  static Key child(Key step, Place place);
  static Key child(Key step, uint32_t id) { return child(step, Place{id}); }
  /// Where kernels that are recorded find `key`; nullptr if nothing is being recorded. Throws
  /// NotRecordable for a key that is no child of the step's.
  static const Key* place_of(Key key);

  /// The children of another step's key from here on, in the order of the stream.
  void set(Key step);

 private:
  Key step_;
  std::map<std::pair<uint32_t, uint32_t>, size_t> slots_;  // by the words of a key
  std::vector<Place> places_;                              // by slot
  Buffer on_device_, on_host_;
};

}  // namespace quintet
