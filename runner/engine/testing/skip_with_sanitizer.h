// For tests of the sandbox: runners are not confined in builds with a sanitizer.
#pragma once

#include <gtest/gtest.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QUIRE_SKIP_WITH_SANITIZER() GTEST_SKIP() << "runners are not confined in builds with a sanitizer"
#else
#define QUIRE_SKIP_WITH_SANITIZER() static_cast<void>(0)
#endif
