#include "server/tier/prefix_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/fields.h"
#include "api/json/read.h"
#include "api/json/type.h"
#include "server/tier/isolation_key.h"

namespace quire::server {
namespace {

using Json = api::Json;

constexpr size_t kIdCharactersMin = 4;
constexpr uint64_t kNsPerSecond = 1'000'000'000;
constexpr size_t kTenantShown = 12;

std::string DumpPrefix(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

uint64_t SecondsUnused(const StoredPrefix& prefix, uint64_t now_ns) {
  return now_ns > prefix.used_ns ? (now_ns - prefix.used_ns) / kNsPerSecond : 0;
}

// The begin of the tenant's name, and whether the requests had a cache_salt.
std::pair<std::string, bool> OwnerIn(const std::string& isolation) {
  const auto tenant = TenantIn(isolation);
  if (!tenant) return {};
  return {std::string(tenant->substr(0, kTenantShown)),
          tenant->data() + tenant->size() != isolation.data() + isolation.size()};
}

Json DescribePrefix(const StoredPrefix& prefix, uint64_t now_ns) {
  const auto [tenant, salted] = OwnerIn(prefix.origin.isolation);
  return Json{{"id", HexOf(prefix.id)},
              {"model", prefix.origin.model},
              {"tokens", prefix.tokens},
              {"bytes", prefix.bytes},
              {"unused_seconds", SecondsUnused(prefix, now_ns)},
              {"hits", prefix.hits},
              {"tenant", tenant},
              {"salted", salted}};
}

}  // namespace

std::string EncodePrefixes(const TierStats& stats, const std::vector<StoredPrefix>& prefixes,
                           uint64_t now_ns) {
  Json list = Json::array();
  for (const StoredPrefix& prefix : prefixes) list.push_back(DescribePrefix(prefix, now_ns));
  return DumpPrefix({{"bytes", stats.bytes},
                     {"budget_bytes", stats.budget_bytes},
                     {"files", stats.files},
                     {"writing", stats.writing},
                     {"prefixes", std::move(list)}});
}

std::string EncodePrefix(const StoredPrefix& prefix, uint64_t now_ns) {
  Json json = DescribePrefix(prefix, now_ns);
  json["segments"] = prefix.segments;
  json["segment_tokens"] = prefix.origin.segment_tokens;
  json["files"] = prefix.origin.files;
  json["byte_class"] = prefix.origin.byte_class;
  json["program"] = prefix.origin.program;
  return DumpPrefix(json);
}

std::string EncodePruned(const Pruned& pruned) {
  return DumpPrefix({{"prefixes", pruned.prefixes}, {"files", pruned.files}, {"bytes", pruned.bytes}});
}

std::string EncodeImported(const Imported& imported) {
  Json ids = Json::array();
  for (const SnapshotKey& id : imported.ids) ids.push_back(HexOf(id));
  return DumpPrefix({{"ids", std::move(ids)},
                     {"models", imported.models},
                     {"tokens", imported.tokens},
                     {"segments_written", imported.written},
                     {"segments_existing", imported.existing}});
}

api::Result<PruneRequest> ParsePrune(std::string_view body) {
  const auto json = api::ReadJson(body);
  if (!json) return std::unexpected(json.error());
  api::FirstError error;
  api::Fields fields(*json, "", error);
  PruneRequest request;
  if (const api::Json* ids = fields.FindArray("ids")) {
    for (const api::Json& id : *ids) {
      if (!id.is_string()) {
        fields.Reject("ids", "must be an array of strings");
        break;
      }
      request.ids.push_back(id.get<std::string>());
    }
  }
  fields.Get("model", request.model);
  int64_t seconds = -1;
  if (fields.Get("unused_seconds", seconds, int64_t{0}, int64_t{1} << 32)) request.unused_seconds = seconds;
  fields.Get("all", request.all);
  fields.VisitUnread([&](std::string_view name) {
    fields.Reject(name, "is unknown");
    return false;
  });
  if (error) return std::unexpected(*std::move(error));
  const bool chosen = !request.ids.empty() || !request.model.empty() || request.unused_seconds;
  if (chosen == request.all) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     "say which prefixes: ids, model, unused_seconds, or all alone");
  }
  return request;
}

api::Result<SnapshotKey> FindPrefix(const std::vector<StoredPrefix>& prefixes, std::string_view id) {
  if (id.size() < kIdCharactersMin) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("the id of a prefix has at least {} characters", kIdCharactersMin), "id");
  }
  const StoredPrefix* found = nullptr;
  for (const StoredPrefix& prefix : prefixes) {
    if (!HexOf(prefix.id).starts_with(id)) continue;
    if (found != nullptr) {
      return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("several prefixes begin with {}", id),
                       "id");
    }
    found = &prefix;
  }
  if (found == nullptr) return api::Fail(api::ErrorCode::kNotFound, fmt::format("no prefix {}", id), "id");
  return found->id;
}

api::Result<std::vector<SnapshotKey>> SelectPrefixes(const std::vector<StoredPrefix>& prefixes,
                                                     const PruneRequest& request, uint64_t now_ns) {
  std::vector<SnapshotKey> named;
  named.reserve(request.ids.size());
  for (const std::string& id : request.ids) {
    const auto found = FindPrefix(prefixes, id);
    if (!found) return std::unexpected(found.error());
    named.push_back(*found);
  }
  std::vector<SnapshotKey> selected;
  for (const StoredPrefix& prefix : prefixes) {
    if (!named.empty() && std::ranges::find(named, prefix.id) == named.end()) continue;
    const std::string& model = prefix.origin.model;
    if (!request.model.empty() && model != request.model && model != request.model + ":latest") continue;
    const auto unused = static_cast<int64_t>(SecondsUnused(prefix, now_ns));
    if (request.unused_seconds && unused < *request.unused_seconds) continue;
    selected.push_back(prefix.id);
  }
  return selected;
}

}  // namespace quire::server
