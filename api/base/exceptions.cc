#include "api/base/exceptions.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

namespace quire::api {
namespace {

constinit const char* program_name = "";

void Print(const char* why) {
  std::array<char, 512> line{};
  const int length = std::snprintf(line.data(), line.size(), "%s: ends: %s\n", program_name, why);
  const size_t bytes = std::min(static_cast<size_t>(std::max(length, 0)), line.size() - 1);
  static_cast<void>(::write(STDERR_FILENO, line.data(), bytes));
}

[[noreturn]] void End() {
  try {
    if (std::current_exception()) throw;
    // Where gcc ends a noexcept frame itself, the exception is under way and its type is not known.
    Print(std::uncaught_exceptions() > 0 ? "out of memory, or another exception" : "terminated");
  } catch (const std::bad_alloc&) {
    Print("out of memory");
  } catch (const std::exception& error) {
    Print(error.what());
  } catch (...) {
    Print("unknown exception");
  }
  std::abort();
}

}  // namespace

void InstallTerminateHandler(const char* program) {
  program_name = program;
  std::set_terminate(End);
}

Error ErrorOf(const std::exception& thrown) {
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr)
    return {ErrorCode::kUnavailable, "out of memory"};
  return {ErrorCode::kInternal, thrown.what()};
}

}  // namespace quire::api
