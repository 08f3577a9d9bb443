// llama.cpp's /slots: the list, and saving, restoring and erasing what a slot remembers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/reply_encoder.h"

namespace quire::api::llama_server {

enum class SlotAction : uint8_t { kSave, kRestore, kErase };

struct SlotRequest {
  std::string model;  // empty = left out
  SlotAction action = SlotAction::kSave;
  int32_t slot = 0;
  std::string name;  // "filename"; not for kErase
};

// `path`: what follows "/slots/"; `query`: as of the request. The body may be missing for kErase.
Result<SlotRequest> ParseSlotAction(std::string_view path, std::string_view query, std::string_view body);

std::string EncodeErased(int32_t slot, size_t tokens);

// The reply once the prefix is in the cache, which calls `done` first.
class SlotEncoder : public ReplyEncoder {
 public:
  SlotEncoder(SlotRequest request, size_t tokens, std::function<void()> done)
      : request_(std::move(request)), tokens_(tokens), done_(std::move(done)) {}

 private:
  std::string OnDelta(const TextDelta&, const EventContext&) override { return {}; }
  std::string OnFinished(const Finished& finished, const EventContext& context) override;

  SlotRequest request_;
  size_t tokens_;
  std::function<void()> done_;
};

}  // namespace quire::api::llama_server
