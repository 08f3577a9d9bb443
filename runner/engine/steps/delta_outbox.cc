#include "runner/engine/steps/delta_outbox.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/base/utf8.h"

namespace quire::runner::engine {
namespace {

constexpr size_t kCharacterBytesMax = 4;

size_t ContentBytesOf(const api::ToolCall& call) {
  return sizeof(call) + call.id.size() + call.name.size() + call.arguments_json.size();
}

size_t ContentBytesOf(const api::TextDelta& delta) {
  size_t bytes = delta.text.size() + delta.thinking.size();
  for (const api::ToolCall& call : delta.tool_calls) bytes += ContentBytesOf(call);
  return bytes;
}

// The whole characters within the first `limit` bytes.
std::string_view FirstCharacters(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  size_t size = limit;
  while (size > 0 && limit - size < kCharacterBytesMax && api::IsContinuationByte(text[size])) --size;
  return text.substr(0, size);
}

}  // namespace

void DeltaOutbox::Resume(int64_t deltas, int32_t credit) {
  to_skip_ = deltas;
  credit_ = credit;
}

void DeltaOutbox::Add(api::Event event) {
  if (held_.empty()) return emit_(std::move(event));
  held_.push_back(std::move(event));
}

void DeltaOutbox::AddDelta(api::TextDelta delta) {
  if (ContentBytesOf(delta) <= kPieceBytesMax) return AddPiece(std::move(delta));
  AddPieces(std::move(delta));
}

// The first piece has the tokens, their state and their log-probabilities.
void DeltaOutbox::AddPieces(api::TextDelta delta) {
  const std::string text = std::exchange(delta.text, {});
  const std::string thinking = std::exchange(delta.thinking, {});
  std::vector<api::ToolCall> calls = std::exchange(delta.tool_calls, {});
  api::TextDelta piece = std::move(delta);
  size_t room = kPieceBytesMax;
  const auto next_piece = [&] {
    AddPiece(std::exchange(piece, {}));
    room = kPieceBytesMax;
  };
  const auto add_text = [&](std::string_view rest, std::string api::TextDelta::*to) {
    while (!rest.empty()) {
      const std::string_view part = FirstCharacters(rest, room);
      piece.*to += part;
      room -= part.size();
      rest.remove_prefix(part.size());
      if (!rest.empty()) next_piece();
    }
  };
  add_text(thinking, &api::TextDelta::thinking);
  add_text(text, &api::TextDelta::text);
  for (api::ToolCall& call : calls) {
    const size_t bytes = ContentBytesOf(call);
    if (bytes > room && room < kPieceBytesMax) next_piece();
    room -= std::min(room, bytes);
    piece.tool_calls.push_back(std::move(call));
  }
  AddPiece(std::move(piece));
}

void DeltaOutbox::AddPiece(api::TextDelta piece) {
  if (to_skip_ > 0) {
    --to_skip_;
  } else if (credit_ > 0 && held_.empty()) {
    Send(std::move(piece));
  } else {
    held_.emplace_back(std::move(piece));
  }
}

void DeltaOutbox::AddCredit(int32_t deltas) {
  credit_ += deltas;
  while (!held_.empty() && (credit_ > 0 || !std::holds_alternative<api::TextDelta>(held_.front()))) {
    Send(std::move(held_.front()));
    held_.pop_front();
  }
}

void DeltaOutbox::Send(api::Event event) {
  if (const auto* delta = std::get_if<api::TextDelta>(&event)) credit_ -= api::ipc::CreditOf(*delta);
  emit_(std::move(event));
}

}  // namespace quire::runner::engine
