// Tokens as an excerpt of text for people: bounded, valid UTF-8.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {

enum class Excerpt : uint8_t { kBegin, kEnd };

// The text of the first or the last tokens, whole tokens of at most `bytes_max` bytes together.
std::string TextOf(const tokenizer::Tokenizer& tokenizer, std::span<const tokenizer::TokenId> tokens,
                   Excerpt excerpt, size_t bytes_max);

}  // namespace quire::runner::engine
