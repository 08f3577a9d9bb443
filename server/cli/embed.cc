#include "server/cli/embed.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/cli/table.h"
#include "server/cli/terminal.h"

namespace quire::cli {
namespace {

using EmbedJson = nlohmann::ordered_json;

constexpr size_t kTextsPerRequest = 256;

std::string JsonLine(const EmbedJson& json) {
  return json.dump(-1, ' ', false, EmbedJson::error_handler_t::replace);
}

// The words, or the lines of standard input where there are none or the only one is "-".
std::vector<std::string> TextsOf(std::span<const std::string> words) {
  if (!words.empty() && !(words.size() == 1 && words.front() == "-")) return {words.begin(), words.end()};
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

api::Error InvalidReply() { return {api::ErrorCode::kInternal, "the server returned an invalid reply"}; }

api::Error NoTexts() { return {api::ErrorCode::kInvalidArgument, "no texts and no input"}; }

}  // namespace

int Embed(Client& client, const Arguments& arguments) {
  const std::vector<std::string> texts = TextsOf(arguments.words);
  if (texts.empty()) return PrintError(NoTexts());
  for (size_t begin = 0; begin < texts.size(); begin += kTextsPerRequest) {
    const size_t end = std::min(texts.size(), begin + kTextsPerRequest);
    EmbedJson body = {{"model", arguments.model},
                      {"truncate", "END"},
                      {"input", std::vector<std::string>(texts.begin() + static_cast<ptrdiff_t>(begin),
                                                         texts.begin() + static_cast<ptrdiff_t>(end))}};
    if (arguments.dimensions > 0) body["dimensions"] = arguments.dimensions;
    if (!arguments.input_type.empty()) body["input_type"] = arguments.input_type;
    const auto reply = client.Post("/v1/embeddings", JsonLine(body));
    if (!reply) return PrintError(reply.error());
    const EmbedJson json = EmbedJson::parse(*reply, nullptr, false);
    const EmbedJson vectors = json.is_object() ? json.value("data", EmbedJson()) : EmbedJson();
    if (!vectors.is_array() || vectors.size() != end - begin) return PrintError(InvalidReply());
    for (size_t i = begin; i < end; ++i) {
      const EmbedJson& vector = vectors[i - begin];
      if (!vector.is_object() || !vector.contains("embedding")) return PrintError(InvalidReply());
      fmt::print("{}\n", JsonLine({{"index", i}, {"text", texts[i]}, {"embedding", vector["embedding"]}}));
    }
  }
  return 0;
}

int Rerank(Client& client, const Arguments& arguments) {
  const std::vector<std::string> documents = TextsOf(arguments.words);
  if (documents.empty()) return PrintError(NoTexts());
  EmbedJson body = {{"model", arguments.model}, {"query", arguments.query}, {"documents", documents}};
  if (arguments.top > 0) body["top_n"] = arguments.top;
  if (!arguments.instruction.empty()) body["instruction"] = arguments.instruction;
  const auto reply = client.Post("/v1/rerank", JsonLine(body));
  if (!reply) return PrintError(reply.error());
  const EmbedJson json = EmbedJson::parse(*reply, nullptr, false);
  std::vector<std::vector<std::string>> rows = {{"SCORE", "INDEX", "DOCUMENT"}};
  for (const EmbedJson& one :
       json.is_object() ? json.value("results", EmbedJson::array()) : EmbedJson::array()) {
    const auto index = one.value("index", size_t{0});
    const double score = one.value("relevance_score", 0.0);
    if (index >= documents.size()) continue;
    if (arguments.json) {
      fmt::print("{}\n", JsonLine({{"index", index}, {"score", score}, {"text", documents[index]}}));
    } else {
      rows.push_back({fmt::format("{:.4f}", score), std::to_string(index), documents[index]});
    }
  }
  if (!arguments.json) fmt::print("{}", FormatTable(rows));
  return 0;
}

}  // namespace quire::cli
