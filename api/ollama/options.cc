#include "api/ollama/options.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/limits.h"
#include "api/json/body.h"
#include "api/json/read.h"

namespace quire::api {
namespace {

using Reader = void (*)(Fields& fields, std::string_view name, Options& options);

// `Range` is the least and, if given, the largest value.
template <auto Member, int... Range>
void Read(Fields& fields, std::string_view name, Options& options) {
  using Value = typename std::remove_cvref_t<decltype(options.*Member)>::value_type;
  fields.Get(name, options.*Member, static_cast<Value>(Range)...);
}

void ReadStop(Fields& fields, std::string_view name, Options& options) {
  const Json* value = fields.Find(name);
  if (value == nullptr) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  std::vector<std::string> stop;
  size_t bytes = 0;
  for (const Json& text : list) {
    if (!text.is_string()) return fields.Reject(name, "must be of type string or array of strings");
    bytes += text.get_ref<const std::string&>().size();
    if (!text.get_ref<const std::string&>().empty()) stop.push_back(text.get<std::string>());
    if (stop.size() > kStopStringsMax || bytes > kStopBytesMax) {
      return fields.Reject(
          name, fmt::format("must contain at most {} strings of {} bytes", kStopStringsMax, kStopBytesMax));
    }
  }
  options.stop = std::move(stop);
}

// Accepted because clients send them; they steer how other servers load models and have no meaning here.
template <class T>
void CheckHint(Fields& fields, std::string_view name, Options&) {
  T value{};
  fields.Get(name, value);
}

struct Entry {
  std::string_view name;
  Reader read;
};

constexpr auto kTable = std::to_array<Entry>({
    {"num_ctx", Read<&Options::num_ctx, 0>},
    {"num_predict", Read<&Options::num_predict>},
    {"num_keep", Read<&Options::num_keep, -1>},
    {"temperature", Read<&Options::temperature>},
    {"top_k", Read<&Options::top_k>},
    {"top_p", Read<&Options::top_p, 0>},
    {"min_p", Read<&Options::min_p, 0, 1>},
    {"typical_p", Read<&Options::typical_p, 0>},
    {"repeat_last_n", Read<&Options::repeat_last_n, -1>},
    {"repeat_penalty", Read<&Options::repeat_penalty, 0>},
    {"presence_penalty", Read<&Options::presence_penalty>},
    {"frequency_penalty", Read<&Options::frequency_penalty>},
    {"seed", Read<&Options::seed>},
    {"stop", ReadStop},
    {"min_tokens", Read<&Options::min_tokens, 0>},
    {"ignore_eos", Read<&Options::ignore_eos>},
    {"draft_num_predict", Read<&Options::draft_num_predict>},
    {"num_batch", CheckHint<int32_t>},
    {"num_gpu", CheckHint<int32_t>},
    {"main_gpu", CheckHint<int32_t>},
    {"num_thread", CheckHint<int32_t>},
    {"mirostat", CheckHint<int32_t>},
    {"mirostat_tau", CheckHint<float>},
    {"mirostat_eta", CheckHint<float>},
    {"tfs_z", CheckHint<float>},
    {"use_mmap", CheckHint<bool>},
    {"use_mlock", CheckHint<bool>},
    {"low_vram", CheckHint<bool>},
    {"f16_kv", CheckHint<bool>},
    {"logits_all", CheckHint<bool>},
    {"vocab_only", CheckHint<bool>},
    {"numa", CheckHint<bool>},
    {"penalize_newline", CheckHint<bool>},
});

const Entry* FindEntry(std::string_view name) {
  const auto* entry =
      std::ranges::find_if(kTable, [name](const Entry& e) { return EqualIgnoringCase(e.name, name); });
  return entry == kTable.end() ? nullptr : entry;
}

void ReadAll(const Json& object, FirstError& error, Options& options, std::vector<std::string>& unknown) {
  constexpr size_t kUnknownMax = 16;  // for a log line; the rest is as uninteresting
  Fields fields(object, "options", error, Noun::kOption);
  if (!fields.ok()) return;
  for (const Entry& entry : kTable) entry.read(fields, entry.name, options);
  for (const auto& [name, value] : object.get_ref<const Json::object_t&>()) {
    if (unknown.size() < kUnknownMax && FindEntry(name) == nullptr) unknown.push_back(name);
  }
}

}  // namespace

void GetOptions(Fields& body, Options& options, std::vector<std::string>& unknown) {
  if (const Json* object = body.FindObject("options")) ReadAll(*object, body.error(), options, unknown);
}

void GetOption(Fields& fields, std::string_view name, Options& options) {
  if (const Entry* entry = FindEntry(name)) entry->read(fields, entry->name, options);
}

void GetStop(Fields& fields, std::string_view name, Options& options) { ReadStop(fields, name, options); }

Result<ParsedOptions> ParseOptions(std::string_view json_object) {
  const auto object = ReadJson(json_object);
  if (!object) return std::unexpected(object.error());
  ParsedOptions parsed;
  FirstError error;
  ReadAll(*object, error, parsed.options, parsed.unknown);
  if (error) return std::unexpected(std::move(*error));
  return parsed;
}

}  // namespace quire::api
