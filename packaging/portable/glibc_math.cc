// glibc 2.29 gave exp, exp2, log, log2 and pow a second version, without the error handling of System V.
// Programs that refer to the first version run on glibc 2.28 too. Both compute by the same algorithm, which
// 2.28 brought: the results are bit-identical but for the sign of a NaN. The definitions are hidden: the
// loader would find them for the older versions too.
#if defined(__x86_64__)
#define QUIRE_FIRST_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define QUIRE_FIRST_VERSION "GLIBC_2.17"
#else
#error "the first version of the C library's symbols on this architecture"
#endif

extern "C" {

double QuireExp(double x);
double QuireExp2(double x);
double QuireLog(double x);
double QuireLog2(double x);
double QuirePow(double x, double y);
__asm__(".symver QuireExp, exp@" QUIRE_FIRST_VERSION);
__asm__(".symver QuireExp2, exp2@" QUIRE_FIRST_VERSION);
__asm__(".symver QuireLog, log@" QUIRE_FIRST_VERSION);
__asm__(".symver QuireLog2, log2@" QUIRE_FIRST_VERSION);
__asm__(".symver QuirePow, pow@" QUIRE_FIRST_VERSION);

#define QUIRE_HIDDEN __attribute__((visibility("hidden")))
QUIRE_HIDDEN double exp(double x) noexcept { return QuireExp(x); }
QUIRE_HIDDEN double exp2(double x) noexcept { return QuireExp2(x); }
QUIRE_HIDDEN double log(double x) noexcept { return QuireLog(x); }
QUIRE_HIDDEN double log2(double x) noexcept { return QuireLog2(x); }
QUIRE_HIDDEN double pow(double x, double y) noexcept { return QuirePow(x, y); }

}  // extern "C"
