// The output format that a request asks for. Plain data.
#pragma once

#include <cstdint>
#include <string>

namespace quire::api {

// The runner compiles it; what it cannot enforce it refuses.
struct OutputFormat {
  enum class Kind : uint8_t {
    kJsonObject,  // any JSON object
    kSchema,      // text: a JSON Schema
    kRegex,       // text: a regular expression that the whole answer matches
    kChoice,      // text: a JSON list of strings, one of which the answer is
    kGrammar,     // text: a grammar in GBNF, llama.cpp's syntax
  };
  Kind kind = Kind::kJsonObject;
  std::string text = {};
  std::string field = {};  // of the request, for messages: "format"
};

}  // namespace quire::api
