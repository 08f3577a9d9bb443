// For tests of the sandbox: where there is none.
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QUIRE_SKIP_WITH_SANITIZER() GTEST_SKIP() << "runners are not confined in builds with a sanitizer"
#else
#define QUIRE_SKIP_WITH_SANITIZER() static_cast<void>(0)
#endif

// What runs programs of another architecture filters no system calls, and libseccomp makes no filter there.
#define QUIRE_SKIP_WITHOUT_SECCOMP() \
  if (::prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0) GTEST_SKIP() << "nothing filters system calls here"
