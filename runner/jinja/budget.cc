#include "runner/jinja/budget.h"

#include <fmt/format.h>

namespace quire::runner::jinja {

void Raise(std::string message) { throw RenderError{std::move(message)}; }

void Budget::FailSteps() const {
  Raise(fmt::format("the template takes more than {} steps", limits_.steps_max));
}

void Budget::FailMemory() const {
  Raise(fmt::format("the template needs more than {} bytes of memory", limits_.memory_bytes_max));
}

void Budget::FailDepth() {
  --depth_;  // the guard that called Enter() is not yet alive to Exit()
  Raise(fmt::format("the template recurses deeper than {} levels", limits_.depth_max));
}

}  // namespace quire::runner::jinja
