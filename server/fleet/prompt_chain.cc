#include "server/fleet/prompt_chain.h"

#include <array>
#include <nlohmann/json.hpp>

#include "api/base/model_name.h"
#include "api/json/read.h"
#include "api/json/type.h"

namespace quire::server {
namespace {

constexpr uint64_t kFnvOffset = 0xcbf29ce484222325;
constexpr uint64_t kFnvPrime = 0x100000001b3;

// FNV-1a over everything added so far, and how much of it was text.
class ChainHash {
 public:
  void AddText(std::string_view bytes) {
    for (const char byte : bytes) Mix(static_cast<uint8_t>(byte));
    for (size_t size = bytes.size(); size > 0; size >>= 8) Mix(static_cast<uint8_t>(size));
    Mix(0xff);
    bytes_ += bytes.size();
  }

  void Add(const api::Json& value) {
    Mix(static_cast<uint8_t>(value.type()));
    if (value.is_object()) {
      for (const auto& [name, member] : value.items()) {
        if (name == "cache_control") continue;
        AddText(name);
        Add(member);
      }
      Mix(0xfe);
    } else if (value.is_array()) {
      for (const api::Json& item : value) Add(item);
      Mix(0xfd);
    } else if (value.is_number_integer()) {
      const auto number = static_cast<uint64_t>(value.get<int64_t>());
      for (unsigned shift = 0; shift < 64; shift += 8) Mix(static_cast<uint8_t>(number >> shift));
      ++bytes_;
    } else if (value.is_string()) {
      AddText(value.get_ref<const std::string&>());
    } else {
      AddText(api::DumpJson(value));
    }
  }

  uint64_t hash() const { return hash_; }
  size_t bytes() const { return bytes_; }
  void ResetBytes() { bytes_ = 0; }

 private:
  void Mix(uint8_t byte) { hash_ = (hash_ ^ byte) * kFnvPrime; }

  uint64_t hash_ = kFnvOffset;
  size_t bytes_ = 0;
};

const api::Json* Find(const api::Json& object, std::string_view name) {
  const auto it = object.find(std::string(name));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string ModelOf(const api::Json& body) {
  const api::Json* model = Find(body, "model");
  if (model == nullptr || !model->is_string()) return {};
  const auto name = api::ParseModelName(model->get_ref<const std::string&>());
  return name ? name->Display() : std::string();
}

bool IsUsers(const api::Json& message) {
  if (!message.is_object()) return true;
  const api::Json* role = Find(message, "role");
  return role == nullptr || *role == "user";
}

void AddMessages(const api::Json& messages, ChainHash& hash, PromptChain& chain) {
  bool user_seen = false;
  chain.ends.reserve(messages.size());
  for (const api::Json& message : messages) {
    hash.Add(message);
    chain.ends.push_back({hash.hash(), hash.bytes()});
    if (user_seen) continue;
    chain.conversation = hash.hash();
    user_seen = IsUsers(message);
  }
}

// Only whole pieces are ends: the last one grows with the next turn.
void AddPieces(std::string_view text, ChainHash& hash, PromptChain& chain) {
  chain.ends.reserve(text.size() / PromptChain::kPieceBytes);
  for (bool first = true; first || !text.empty(); first = false) {
    const std::string_view piece = text.substr(0, PromptChain::kPieceBytes);
    text.remove_prefix(piece.size());
    hash.AddText(piece);
    if (first) chain.conversation = hash.hash();
    if (piece.size() == PromptChain::kPieceBytes) chain.ends.push_back({hash.hash(), hash.bytes()});
  }
}

// Token ids of the turns before, which the prompt continues.
bool AddContext(const api::Json& context, ChainHash& hash, PromptChain& chain) {
  if (!context.is_array() || context.empty()) return false;
  size_t count = 0;
  for (const api::Json& token : context) {
    hash.Add(token);
    if (++count == PromptChain::kPieceTokens) chain.conversation = hash.hash();
    if (count % PromptChain::kPieceTokens == 0) chain.ends.push_back({hash.hash(), hash.bytes()});
  }
  if (count < PromptChain::kPieceTokens) chain.conversation = hash.hash();
  return true;
}

bool AddPrompt(const api::Json& body, ChainHash& hash, PromptChain& chain) {
  const api::Json* context = Find(body, "context");
  const bool continued = context != nullptr && AddContext(*context, hash, chain);
  const uint64_t conversation = chain.conversation;
  for (const char* name : {"messages", "input", "prompt"}) {
    const api::Json* prompt = Find(body, name);
    if (prompt == nullptr) continue;
    if (prompt->is_string()) {
      AddPieces(prompt->get_ref<const std::string&>(), hash, chain);
      if (continued) chain.conversation = conversation;
      return true;
    }
    if (prompt->is_array()) {
      AddMessages(*prompt, hash, chain);
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<PromptChain> ReadPromptChain(std::string_view body, std::string_view credential) {
  const auto json = api::ReadJson(body);
  if (!json || !json->is_object()) return std::nullopt;
  PromptChain chain{.model = ModelOf(*json)};
  ChainHash hash;
  hash.AddText(credential);
  hash.AddText(chain.model);
  hash.ResetBytes();
  constexpr std::array kHead = {"cache_salt", "system", "instructions", "tools", "functions", "suffix"};
  for (const char* name : kHead) {
    if (const api::Json* value = Find(*json, name)) hash.Add(*value);
  }
  if (!AddPrompt(*json, hash, chain)) return std::nullopt;
  chain.bytes = hash.bytes();
  return chain;
}

}  // namespace quire::server
