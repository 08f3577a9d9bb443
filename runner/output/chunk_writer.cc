#include "runner/output/chunk_writer.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "api/base/random_id.h"

namespace quire::runner::output {
namespace {

constexpr size_t kShortId = 9;

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
    if (short_ids && !IsShortId(call.id)) call.id = api::RandomId({}, kShortId);
    if (call.id.empty()) call.id = api::RandomId("call_");
    chunks.push_back({OutputChunk::Kind::kCall, {}, std::move(call)});
  }
}

}  // namespace quire::runner::output
