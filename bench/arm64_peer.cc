// Calls one product of a library of llama.cpp for arm64, for bench/arm64_peer.py, which counts what is executed:
//
//   arm64_peer LIBRARY FUNCTION INPUTS ROWS OUTPUTS
//
// FUNCTION: ggml_gemm_*, ggml_gemv_* or ggml_vec_dot_*. All data are zero; none of these functions depends on the values.
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

using Gemm = void (*)(int inputs, float* out, std::size_t stride, const void* weights, const void* rows,
                      int row_count, int output_count);
using Dot = void (*)(int inputs, float* out, std::size_t out_stride, const void* weights,
                     std::size_t weight_stride, const void* row, std::size_t row_stride, int row_count);

// More than any type of the library needs.
constexpr std::size_t kBytesPerInput = 2;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  void* library = dlopen(argv[1], RTLD_NOW);
  void* function = library != nullptr ? dlsym(library, argv[2]) : nullptr;
  if (function == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  const int inputs = std::atoi(argv[3]);
  const int rows = std::atoi(argv[4]);
  const int outputs = std::atoi(argv[5]);
  const auto bytes = kBytesPerInput * static_cast<std::size_t>(inputs);
  std::vector<char> weights(bytes * static_cast<std::size_t>(outputs) + 4096);
  std::vector<char> activations(bytes * static_cast<std::size_t>(rows) + 4096);
  std::vector<float> out(static_cast<std::size_t>(outputs) * static_cast<std::size_t>(rows) + 64);
  std::printf("%p\n", function);
  std::fflush(stdout);
  if (std::string_view(argv[2]).starts_with("ggml_vec_dot")) {
    reinterpret_cast<Dot>(function)(inputs, out.data(), static_cast<std::size_t>(rows), weights.data(), bytes,
                                    activations.data(), bytes, rows);
  } else {
    reinterpret_cast<Gemm>(function)(inputs, out.data(), static_cast<std::size_t>(outputs), weights.data(),
                                     activations.data(), rows, outputs);
  }
}
