// Events about stored prefixes in the format of vLLM's KV events, which routers (llm-d, AIBrix, Dynamo) read.
//
// A message has three frames: the topic, a sequence number (8 bytes, most significant first), and a batch in MessagePack.
// A batch is [seconds since 1970, [event, ...], data parallel rank (0)]. An event is an array that begins with its name:
//   ["BlockStored", [hash], hash of the block before it or nil, [token, ...], tokens of a block, nil, "DISK", nil]
//   ["BlockRemoved", [hash], "DISK"]
//   ["AllBlocksCleared"]
// as vLLM's msgspec structs with array_like=True; the two nils are its lora_id and lora_name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/tier/keys.h"

namespace quire::server {

struct BlockStored {
  uint64_t hash = 0;
  std::optional<uint64_t> parent = {};  // nothing: it begins a prompt
  std::vector<int32_t> tokens = {};     // of this block; all blocks of a model have as many
};
struct BlockRemoved {
  uint64_t hash = 0;
};
struct AllBlocksCleared {};
using KvEvent = std::variant<BlockStored, BlockRemoved, AllBlocksCleared>;

// The name of a segment as an integer: unique on one machine, but for a chance of 2^-64 for two of them.
uint64_t BlockHash(const SnapshotKey& key);
// "kv@MACHINE@MODEL"
std::string KvTopic(std::string_view machine, std::string_view model);
std::string SequenceFrame(uint64_t number);
std::string EncodeKvBatch(const std::vector<KvEvent>& events, double seconds);

}  // namespace quire::server
