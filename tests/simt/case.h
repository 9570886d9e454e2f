#pragma once
// A case of the device-language layer: a kernel, what it must give, and the ways in which it is
// broken on purpose. The kernels' sources are compiled for the emulator and, where there is nvcc,
// for the GPU.

#include <functional>
#include <string>
#include <vector>

namespace quintet::simt_test {

struct Case {
  std::string name;
  int sm = 80;          // capability it needs, times ten; 90 means the sm_90a instructions
  float tolerance = 0;  // of max(1, |expected|); 0: equal bits
  std::vector<float> expected;
  /// Runs the kernel; fault 0 is the healthy one, i the one broken by faults[i - 1].
  std::function<std::vector<float>(int fault)> run;
  std::vector<std::string> faults;
};
using Cases = std::vector<Case>;

}  // namespace quintet::simt_test

#define QT_SIMT_TEST_CASES(backend)                \
  namespace quintet::backend {                     \
  void add_block_cases(simt_test::Cases& out);     \
  void add_warp_cases(simt_test::Cases& out);      \
  void add_copy_cases(simt_test::Cases& out);      \
  void add_matrix_cases(simt_test::Cases& out);    \
  void add_tensor_cases(simt_test::Cases& out);    \
  void add_warpgroup_cases(simt_test::Cases& out); \
  void add_cluster_cases(simt_test::Cases& out);   \
  void add_dependent_cases(simt_test::Cases& out); \
  inline simt_test::Cases simt_cases() {           \
    simt_test::Cases out;                          \
    add_block_cases(out);                          \
    add_warp_cases(out);                           \
    add_copy_cases(out);                           \
    add_matrix_cases(out);                         \
    add_tensor_cases(out);                         \
    add_warpgroup_cases(out);                      \
    add_cluster_cases(out);                        \
    add_dependent_cases(out);                      \
    return out;                                    \
  }                                                \
  }
