#include "apps/export/export_bundle.h"
#include "apps/export/export_onnx.h"
#include "apps/export/export_source.h"
#include "apps/process/output.h"

namespace quintet {

void export_model(const ExportFlags& flags, ExportSource source) {
  const std::optional<DType> dtype =
      flags.dtype.empty() ? std::nullopt : std::optional(dtype_from_name(flags.dtype));
  const std::optional<WeightType> weights = flags.quantize.type();
  const int64_t bytes = flags.is_onnx() ? export_onnx(source, dtype, weights, flags.external_data)
                                        : export_bundle(source, dtype, weights);
  fmt::print("{}: {} at step {} as {}, {:.1f} MiB\n", source.output, source.name,
             source.from->step(), flags.is_onnx() ? "an ONNX graph" : "a bundle",
             static_cast<double>(bytes) / (1 << 20));
}

}  // namespace quintet
