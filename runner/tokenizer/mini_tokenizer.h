// A small tokenizer.json for tests: the 256 byte tokens (id = byte), then "Ġ..." style entries from 256 on.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/tokenizer/byte_level.h"

namespace quire::runner::tokenizer {

// Each merge makes the next free id. Parts are written as the vocabulary writes them.
inline nlohmann::json MiniTokenizer(const std::vector<std::pair<std::string, std::string>>& merges = {}) {
  nlohmann::json document = {
      {"added_tokens", nlohmann::json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"model", {{"type", "BPE"}, {"vocab", nlohmann::json::object()}, {"merges", nlohmann::json::array()}}}};
  auto& model = document["model"];
  int id = 0;
  for (; id < 256; ++id) model["vocab"][ByteLevelCharacter(static_cast<uint8_t>(id))] = id;
  for (const auto& [left, right] : merges) {
    model["vocab"][left + right] = id++;
    model["merges"].push_back({left, right});
  }
  return document;
}

inline nlohmann::json Added(int id, const std::string& content, bool special = true) {
  return {{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
}

}  // namespace quire::runner::tokenizer
