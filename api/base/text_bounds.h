// How much text a prompt may have before anybody reads it to its end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "api/base/error.h"
#include "api/base/request.h"

namespace quire::api {

// A text within its bounds need not fit the context; one beyond them never does, or would cost far more than
// what fits.
struct TextBounds {
  size_t bytes = 0;
  size_t tokens = 0;  // counts are exact up to here
};

// A text that is refused when it does not fit costs no more than some contexts of tokens. One that will be
// truncated may be longer. `num_ctx`: tokens of the request's context.
TextBounds TextBoundsFor(int32_t num_ctx, Overflow overflow);

// Bytes of all texts and ids of the prompt: whatever is sent to a runner, and read there before it is known
// to fit.
size_t TextBytes(const Prompt& prompt);
size_t ImagesOf(const Prompt& prompt);  // how many

// kContextLengthExceeded, of a text beyond the bounds.
Error ExceedsBounds(const TextBounds& bounds, int32_t num_ctx);

// Names the options that raise the context in an error of a prompt that exceeds it; nothing is added where
// the context is the whole `trained` length. `held`: what the runner's caches hold of one sequence, 0 = not
// known; an error at that bound names the options of memory.
Error WithContextOptions(Error error, int32_t num_ctx, int32_t trained, int32_t held);

}  // namespace quire::api
