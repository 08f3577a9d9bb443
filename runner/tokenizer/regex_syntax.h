// Patterns of tokenizer.json are written for Oniguruma (Ruby syntax). They look like PCRE2's but some
// constructs mean something else there: \s and \w cover other characters, \h is a hex digit, `&&` and `[`
// inside a class are set operations. Every construct used by a pre-tokenizer is translated to the same set of
// strings; every other one is refused, because a pattern that is read differently tokenizes wrongly without a
// sign of it.
#pragma once

#include <string>
#include <string_view>

#include "api/base/error.h"

namespace quire::runner::tokenizer {

// The pattern for PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE. kBadModel names the construct and its offset.
api::Result<std::string> TranslateOniguruma(std::string_view pattern);

}  // namespace quire::runner::tokenizer
