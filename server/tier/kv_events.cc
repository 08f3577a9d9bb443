#include "server/tier/kv_events.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "api/json/type.h"

namespace quire::server {
namespace {

using api::Json;

// Where the blocks lie, in the words of other servers: "GPU", "CPU", "DISK".
constexpr const char* kMedium = "DISK";

Json Encode(const BlockStored& block) {
  const Json parent = block.parent ? Json(*block.parent) : Json(nullptr);
  return Json::array({"BlockStored", Json::array({block.hash}), parent, block.tokens, block.tokens.size(),
                      nullptr, kMedium, nullptr});
}

Json Encode(const BlockRemoved& block) {
  return Json::array({"BlockRemoved", Json::array({block.hash}), kMedium});
}

Json Encode(const AllBlocksCleared& /*event*/) { return Json::array({"AllBlocksCleared"}); }

}  // namespace

uint64_t BlockHash(const SnapshotKey& key) {
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof(hash); ++i) hash = (hash << 8) | key[i];
  return hash;
}

std::string KvTopic(std::string_view machine, std::string_view model) {
  return fmt::format("kv@{}@{}", machine, model);
}

std::string SequenceFrame(uint64_t number) {
  std::string frame(sizeof(number), '\0');
  for (size_t i = 0; i < frame.size(); ++i)
    frame[i] = static_cast<char>((number >> (8 * (frame.size() - 1 - i))) & 0xFF);
  return frame;
}

std::string EncodeKvBatch(const std::vector<KvEvent>& events, double seconds) {
  Json list = Json::array();
  for (const KvEvent& event : events)
    list.push_back(std::visit([](const auto& each) { return Encode(each); }, event));
  std::string bytes;
  Json::to_msgpack(Json::array({seconds, std::move(list), 0}), nlohmann::detail::output_adapter<char>(bytes));
  return bytes;
}

}  // namespace quire::server
