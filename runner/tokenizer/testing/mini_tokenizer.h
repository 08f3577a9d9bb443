// A small tokenizer.json for tests.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace quire::runner::tokenizer {

// The 256 byte tokens (id = byte), GPT-2's pre-tokenizer, and the given merges: each makes the next free id.
// Parts are written as a vocabulary writes them ("\u0120" is a space).
nlohmann::json MiniTokenizer(const std::vector<std::pair<std::string, std::string>>& merges = {});

// An entry for its "added_tokens".
nlohmann::json Added(int id, const std::string& content, bool special = true);

}  // namespace quire::runner::tokenizer
