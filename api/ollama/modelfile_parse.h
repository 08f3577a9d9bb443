// The language of Modelfiles: lines of an instruction and its value, as Ollama reads them.
//
//   # a comment
//   FROM quire-demo
//   PARAMETER temperature 0.5
//   SYSTEM """several
//   lines"""
//
// Instructions are matched without regard to case. A value goes to the end of its line; in quotes, " or """,
// it goes to the closing ones at the end of a line, which may be a later one. Nothing is escaped inside
// quotes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"

namespace quire::api::modelfile {

struct Command {
  std::string name;      // lower case: "from", "parameter", "template", "system", "adapter", "license",
                         // "message", "draft", "requires", "renderer", "parser"
  std::string key = {};  // PARAMETER: which, lower case; MESSAGE: the role, lower case; else empty
  std::string value;     // not empty; without quotes and spaces around
  int line = 0;          // from 1; where the instruction stands

  bool operator==(const Command& other) const {
    return name == other.name && key == other.key && value == other.value;
  }
};

// UTF-8, or UTF-16 with its byte order mark. kInvalidArgument "(line N): ..."; "no FROM line" when there is
// none.
Result<std::vector<Command>> Parse(std::string_view text);

// A file that Parse() reads as these commands, one instruction after another. A value that no quotes can hold
// (one with a """ at the end of a line of it) comes out changed; REQUIRES otherwise: commands as Parse()
// gives them.
std::string Write(std::span<const Command> commands);

// The value in the quotes that it needs, if any.
std::string Quoted(std::string_view value);

}  // namespace quire::api::modelfile
