#include "runner/tokenizer/testing/mini_tokenizer.h"

#include <nlohmann/json.hpp>

#include "runner/tokenizer/byte_level.h"

namespace quire::runner::tokenizer {

using nlohmann::json;

json MiniTokenizer(const std::vector<std::pair<std::string, std::string>>& merges) {
  json document = {
      {"added_tokens", json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"model", {{"type", "BPE"}, {"vocab", json::object()}, {"merges", json::array()}}}};
  json& model = document["model"];
  int id = 0;
  for (; id < 256; ++id) model["vocab"][ByteLevelCharacter(static_cast<uint8_t>(id))] = id;
  for (const auto& [left, right] : merges) {
    model["vocab"][left + right] = id++;
    model["merges"].push_back({left, right});
  }
  return document;
}

json Added(int id, const std::string& content, bool special) {
  return {{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
}

}  // namespace quire::runner::tokenizer
