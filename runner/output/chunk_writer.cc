#include "runner/output/chunk_writer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <random>
#include <utility>

namespace quire::runner::output {
namespace {

constexpr size_t kShortId = 9;
constexpr size_t kLongId = 24;

// Letters and digits that no other call has: 9 of them are 53 bits, 24 are 142.
std::string RandomId(size_t size) {
  static constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::random_device random;
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string id;
  for (size_t i = 0; i < size; ++i) id += kLetters[letter(random)];
  return id;
}

bool IsShortId(const std::string& id) {
  return id.size() == kShortId &&
         std::ranges::all_of(id, [](unsigned char c) { return std::isalnum(c) != 0; });
}

}  // namespace

void AddText(OutputChunk::Kind kind, std::string_view text, OutputChunks& chunks) {
  if (text.empty()) return;
  if (!chunks.empty() && chunks.back().kind == kind) {
    chunks.back().text += text;
  } else {
    chunks.push_back({kind, std::string(text)});
  }
}

void AddCalls(std::vector<api::ToolCall> calls, bool short_ids, OutputChunks& chunks) {
  for (api::ToolCall& call : calls) {
    if (short_ids && !IsShortId(call.id)) call.id = RandomId(kShortId);
    if (call.id.empty()) call.id = "call_" + RandomId(kLongId);
    chunks.push_back({OutputChunk::Kind::kCall, {}, std::move(call)});
  }
}

}  // namespace quire::runner::output
