// Mixture of experts runs on the CPU; a GPU refuses it by name.

#include "kernels/kernel.h"
#include "kernels/simt/target.h"

namespace quintet::QT_GPU {
namespace {

[[noreturn]] void refuse(const char* op) {
  fail(ExitCode::kEnvironment, "{}: mixture of experts has no kernels for a GPU; use --device=cpu",
       op);
}

}  // namespace

void route_gpu(Views, Views, const Attrs&, Stream) { refuse("route"); }
void route_grad_gpu(Views, Views, const Attrs&, Stream) { refuse("route_grad"); }
void dispatch_gpu(Views, Views, const Attrs&, Stream) { refuse("dispatch"); }
void combine_gpu(Views, Views, const Attrs&, Stream) { refuse("combine"); }
void combine_grad_gates_gpu(Views, Views, const Attrs&, Stream) { refuse("combine_grad_gates"); }
void experts_in_gpu(Views, Views, const Attrs&, Stream) { refuse("experts_in"); }
void experts_in_grad_gpu(Views, Views, const Attrs&, Stream) { refuse("experts_in_grad"); }
void grouped_matmul_gpu(Views, Views, const Attrs&, Stream) { refuse("grouped_matmul"); }
void grouped_matmul_t_gpu(Views, Views, const Attrs&, Stream) { refuse("grouped_matmul_t"); }
void grouped_matmul_grad_w_gpu(Views, Views, const Attrs&, Stream) { refuse("grouped_matmul_grad_w"); }
void experts_dropout_gpu(Views, Views, const Attrs&, Stream) { refuse("experts_dropout"); }
void mask_tokens_gpu(Views, Views, const Attrs&, Stream) { refuse("mask_tokens"); }

}  // namespace quintet::QT_GPU
