// OpenBLAS as an independent peer of our float products, where it is installed (libopenblas0-pthread). It is
// loaded when asked for: nothing links it.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <optional>

namespace quire::runner::kernels::test {

// The library has its core for the whole process, from when it is first loaded: tests load the one that
// blas_test.cc needs.
inline void UseCoreWithoutAvx2() { ::setenv("OPENBLAS_CORETYPE", "Sandybridge", 1); }

class OpenBlas {
 public:
  // Nothing where it is not installed, or is the serial one, which several threads may not call at once. It
  // stays loaded.
  static std::optional<OpenBlas> Load() {
    void* const library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return std::nullopt;
    const auto is_parallel = reinterpret_cast<int (*)()>(dlsym(library, "openblas_get_parallel"));
    if (is_parallel == nullptr || is_parallel() == 0) return std::nullopt;
    if (void* const threads = dlsym(library, "openblas_set_num_threads"); threads != nullptr) {
      reinterpret_cast<void (*)(int)>(threads)(1);
    }
    void* const sgemm = dlsym(library, "cblas_sgemm");
    if (sgemm == nullptr) return std::nullopt;
    return OpenBlas(reinterpret_cast<Sgemm*>(sgemm));
  }

  // y [rows, out], whose rows are `stride` apart, = x [rows, in] times the transposed w [out, in].
  void Multiply(const float* x, int64_t rows, const float* w, int64_t out, int64_t in, float* y,
                int64_t stride) const {
    constexpr int kRowMajor = 101, kAsItIs = 111, kTransposed = 112;
    const int m = static_cast<int>(rows), n = static_cast<int>(out), k = static_cast<int>(in);
    sgemm_(kRowMajor, kAsItIs, kTransposed, m, n, k, 1, x, k, w, k, 0, y, static_cast<int>(stride));
  }

 private:
  using Sgemm = void(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*,
                     int);
  explicit OpenBlas(Sgemm* sgemm) : sgemm_(sgemm) {}

  Sgemm* sgemm_;
};

}  // namespace quire::runner::kernels::test
