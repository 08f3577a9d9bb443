#include "runner/kernels/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace quire::runner::kernels {

#if defined(__x86_64__)
bool HasAvx512Vnni() { return __builtin_cpu_supports("avx512vnni") != 0; }

// What __builtin_cpu_supports does not know everywhere. Asked once: in a virtual machine cpuid takes as long
// as a small product.
bool HasAvxVnni() {
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & bit_AVXVNNI) != 0;
  }();
  return has;
}
#else
bool HasAvx512Vnni() { return false; }
bool HasAvxVnni() { return false; }
#endif

}  // namespace quire::runner::kernels
