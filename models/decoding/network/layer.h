#pragma once
// A layer, written once for all that runs one: a step of the decoder or whole sequences (an encoder, a
// prefix), on the CPU or on a GPU. A backend knows the rows and where their keys and values are:
//
//   project(i, attention)        the norm of every row, and of that its query, of self-attention also
//                                its key and value
//   attend_self(i, attention)    what each query finds among the keys that its row may see
//   attend_cross(i)              the same among the encoder's
//   add_product(matrix)          what was found, times the matrix, onto the row
//   add_mlp(norm, mlp)           a dense MLP or experts of the norm of every row, onto the row
//   begin_parallel(norm)         until end_parallel() all norms are this one, of the rows as they are now

#include "models/decoding/network/weights.h"

namespace quintet::decoding {

/// Layer i of a stack.
template <class Form, class Backend>
void run_layer(Backend& backend, size_t i, const LayerWeights<Form>& layer) {
  if (layer.parallel) backend.begin_parallel(layer.self.norm);
  backend.project(i, layer.self);
  backend.attend_self(i, layer.self);
  backend.add_product(layer.self.out);
  if (layer.cross) {
    backend.project(i, *layer.cross);
    backend.attend_cross(i);
    backend.add_product(layer.cross->out);
  }
  for (const FeedForwardWeights<Form>& block : layer.feed_forward) {
    std::visit([&](const auto& mlp) { backend.add_mlp(block.norm, mlp); }, block.mlp);
    // An extra MLP reads what the layer was without it.
    if (layer.parallel && &block == layer.feed_forward.data()) backend.end_parallel();
  }
}

template <class Form, class Backend>
void run_layers(Backend& backend, const StackWeights<Form>& stack) {
  for (size_t i = 0; i < stack.layers.size(); ++i) run_layer(backend, i, stack.layers[i]);
}

}  // namespace quintet::decoding
