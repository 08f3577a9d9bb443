#include "api/llama_server/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ids.h"
#include "api/base/parse_integer.h"
#include "api/json/body.h"
#include "api/json/read.h"
#include "api/llama_server/completion.h"

namespace quire::api::llama_server {
namespace {

constexpr size_t kNameBytesMax = 255;

std::string_view ActionOf(std::string_view query) {
  constexpr std::string_view kKey = "action=";
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    if (pair.starts_with(kKey)) return pair.substr(kKey.size());
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
  }
  return {};
}

Result<SlotAction> ParseAction(std::string_view query) {
  const std::string_view action = ActionOf(query);
  if (action == "save") return SlotAction::kSave;
  if (action == "restore") return SlotAction::kRestore;
  if (action == "erase") return SlotAction::kErase;
  return Fail(ErrorCode::kInvalidArgument, "action must be save, restore or erase", "action");
}

Result<int32_t> ParseSlot(std::string_view text) {
  const auto slot = ParseInteger<int32_t>(text);
  if (slot && *slot >= 0 && *slot < kSlotsMax) return *slot;
  return Fail(ErrorCode::kInvalidArgument, fmt::format("the slot must be from 0 to {}", kSlotsMax - 1),
              "id_slot");
}

void GetName(Fields& body, std::string& name) {
  constexpr std::string_view kField = "filename";
  if (!body.Get(kField, name)) body.Reject(kField, "is required and must be of type string");
  const bool bad = name.empty() || name.size() > kNameBytesMax || name.find('/') != std::string::npos ||
                   name.find('\0') != std::string::npos || name == "." || name == "..";
  if (bad)
    body.Reject(kField, fmt::format("must be a name of at most {} bytes without \"/\"", kNameBytesMax));
}

}  // namespace

Result<SlotRequest> ParseSlotAction(std::string_view path, std::string_view query, std::string_view text) {
  SlotRequest request;
  const auto action = ParseAction(query);
  if (!action) return std::unexpected(action.error());
  request.action = *action;
  const auto slot = ParseSlot(path);
  if (!slot) return std::unexpected(slot.error());
  request.slot = *slot;
  if (request.action == SlotAction::kErase && text.empty()) return request;
  const auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  FirstError error;
  Fields body(*json, "", error);
  body.Get("model", request.model);
  if (request.action == SlotAction::kErase) {
    body.Get("filename", request.name);
  } else {
    GetName(body, request.name);
  }
  if (error) return std::unexpected(std::move(*error));
  return request;
}

std::string EncodeErased(int32_t slot, size_t tokens) {
  Json body = {{"id_slot", slot}};
  body["n_erased"] = tokens;
  return DumpJson(body);
}

std::string SlotEncoder::OnFinished(const Finished& finished, const EventContext& context) {
  done_();
  const bool saves = request_.action == SlotAction::kSave;
  const double milliseconds = static_cast<double>(context.total.count()) / 1e6;
  Json timings = Json::object();
  timings[saves ? "save_ms" : "restore_ms"] = milliseconds;
  const Json body = {{"id_slot", request_.slot},
                     {"filename", request_.name},
                     {saves ? "n_saved" : "n_restored", tokens_},
                     {saves ? "n_written" : "n_read", tokens_ * sizeof(TokenId)},
                     {"n_cached", finished.usage.cached_tokens},
                     {"timings", std::move(timings)}};
  return DumpJson(body);
}

}  // namespace quire::api::llama_server
