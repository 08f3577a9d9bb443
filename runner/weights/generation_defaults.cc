#include "runner/weights/generation_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "api/base/limits.h"
#include "api/json/sampler_fields.h"
#include "runner/weights/text.h"

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;

constexpr const char* kSampling = "general.sampling.";
constexpr float kAboveZero = std::numeric_limits<float>::min();
constexpr double kIntegerMax = std::numeric_limits<int32_t>::max();

struct SamplingKey {
  std::string_view option;
  const char* config;  // in generation_config.json, or null
  const char* gguf;    // behind general.sampling., or null
  double min, max;
};

constexpr auto kSamplingKeys = std::to_array<SamplingKey>({
    {"temperature", "temperature", "temp", 0, 100},
    {"top_k", "top_k", "top_k", -1, kIntegerMax},
    {"top_p", "top_p", "top_p", 0, 1},
    {"min_p", "min_p", "min_p", 0, 1},
    {"typical_p", "typical_p", nullptr, kAboveZero, 1},
    {"repeat_penalty", "repetition_penalty", "penalty_repeat", kAboveZero, 100},
    {"repeat_last_n", nullptr, "penalty_last_n", -1, kIntegerMax},
    {"xtc_probability", nullptr, "xtc_probability", 0, 1},
    {"xtc_threshold", nullptr, "xtc_threshold", 0, 1},
    {"mirostat", nullptr, "mirostat", 0, 2},
    {"mirostat_tau", nullptr, "mirostat_tau", 0, 100},
    {"mirostat_eta", nullptr, "mirostat_eta", 0, 1},
});

// They change the answers of transformers, where they are set.
constexpr auto kNotObeyed = std::to_array<const char*>(
    {"num_beams", "penalty_alpha", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
     "encoder_repetition_penalty", "epsilon_cutoff", "eta_cutoff", "top_h", "guidance_scale", "sequence_bias",
     "exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id", "force_words_ids",
     "constraints", "min_length", "min_new_tokens"});

// The value, or null where there is none.
const ordered_json* ValueAt(const ordered_json& object, const std::string& key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

void SetOption(std::string_view name, double value, api::Options& options) {
  api::VisitOptions(
      [&]<class T>(const api::OptionRow& row, std::optional<T>& option) {
        if constexpr (std::is_same_v<T, float> || std::is_same_v<T, int32_t>) {
          if (row.name == name) option = static_cast<T>(value);
        }
      },
      options);
}

class Reader {
 public:
  Reader(const ModelFiles& files, int64_t vocab_size)
      : files_(files),
        gguf_(files.format() == Format::kGguf),
        values_(gguf_ ? files.config() : files.generation_config()),
        vocab_size_(vocab_size) {}

  GenerationDefaults Read() && {
    defaults_.source = gguf_ ? "GGUF metadata" : "generation_config.json";
    if (!values_.is_object()) return std::move(defaults_);
    for (const SamplingKey& key : kSamplingKeys) ReadSampling(key);
    if (gguf_) {
      ReadSequence();
      return std::move(defaults_);
    }
    if (const auto* sample = ValueAt(values_, "do_sample"); sample != nullptr && *sample == false) {
      defaults_.options.temperature = 0.0F;
    }
    ReadIds("suppress_tokens", defaults_.banned);
    ReadIds("begin_suppress_tokens", defaults_.banned_first);
    ReadBadWords();
    CheckBans();
    ReadStop();
    ReportOthers();
    return std::move(defaults_);
  }

 private:
  void AddNote(const std::string& key, std::string_view what) {
    defaults_.notes.push_back(fmt::format("{}: {} {}", defaults_.source, key, what));
  }

  void ReadSampling(const SamplingKey& key) {
    const char* const own = gguf_ ? key.gguf : key.config;
    if (own == nullptr) return;
    const std::string name = (gguf_ ? kSampling : "") + std::string(own);
    const ordered_json* value = ValueAt(values_, name);
    if (value == nullptr) return;
    if (!value->is_number()) return AddNote(name, "is not a number; ignored");
    const auto number = value->get<double>();
    if (!(number >= key.min && number <= key.max)) {
      return AddNote(name, fmt::format("is {:g}, which is out of range; ignored", number));
    }
    SetOption(key.option, number, defaults_.options);
  }

  // "penalties;top_k;temperature"
  void ReadSequence() {
    const std::string name = std::string(kSampling) + "sequence";
    const ordered_json* value = ValueAt(values_, name);
    if (value == nullptr) return;
    if (!value->is_string()) return AddNote(name, "is not a text; ignored");
    std::string_view rest = value->get_ref<const std::string&>();
    api::Json samplers = api::Json::array();
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(';'), rest.size());
      if (end > 0) samplers.push_back(std::string(rest.substr(0, end)));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (samplers.empty()) return;
    api::Json body = api::Json::object();
    body["samplers"] = std::move(samplers);
    api::FirstError error;
    api::Fields fields(body, "", error);
    api::Options options;
    std::vector<std::string> unknown;
    api::GetSamplers(fields, options, unknown);
    if (error) return AddNote(name, "has too many samplers; ignored");
    defaults_.options = api::Overlay(std::move(defaults_.options), options);
    for (const std::string& sampler : unknown)
      AddNote(name, "names a sampler that is not here: " + Quoted(sampler));
  }

  bool IsToken(const ordered_json& id) const {
    return id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < vocab_size_;
  }

  void ReadIds(const char* key, std::vector<api::TokenId>& ids) {
    const ordered_json* list = ValueAt(values_, key);
    if (list == nullptr) return;
    if (!list->is_array()) return AddNote(key, "is not a list; ignored");
    for (const ordered_json& id : *list) {
      if (IsToken(id)) ids.push_back(id.get<api::TokenId>());
    }
    if (ids.size() < list->size()) AddNote(key, "has ids that are not in the vocabulary; these are ignored");
  }

  // As in transformers, a bad word that only is an end of the answer is none.
  void ReadBadWords() {
    constexpr const char* kKey = "bad_words_ids";
    const ordered_json* words = ValueAt(values_, kKey);
    if (words == nullptr) return;
    if (!words->is_array()) return AddNote(kKey, "is not a list; ignored");
    const std::vector<int32_t> ends = files_.end_of_generation_ids();
    bool longer = false, unknown = false;
    for (const ordered_json& word : *words) {
      if (!word.is_array() || word.size() != 1) {
        longer = true;
      } else if (!IsToken(word[0])) {
        unknown = true;
      } else if (std::ranges::find(ends, word[0].get<int32_t>()) == ends.end()) {
        defaults_.banned.push_back(word[0].get<api::TokenId>());
      }
    }
    if (longer) AddNote(kKey, "has words of several tokens; these are read and not obeyed");
    if (unknown) AddNote(kKey, "has ids that are not in the vocabulary; these are ignored");
  }

  void CheckBans() {
    std::set<api::TokenId> ids(defaults_.banned.begin(), defaults_.banned.end());
    ids.insert(defaults_.banned_first.begin(), defaults_.banned_first.end());
    if (std::ssize(ids) < vocab_size_) return;
    defaults_.banned = defaults_.banned_first = {};
    AddNote("suppress_tokens", "and its like ban every token; ignored");
  }

  void ReadStop() {
    constexpr const char* kKey = "stop_strings";
    const ordered_json* value = ValueAt(values_, kKey);
    if (value == nullptr) return;
    const ordered_json list = value->is_array() ? *value : ordered_json::array({*value});
    size_t bytes = 0;
    for (const ordered_json& text : list) {
      if (text.is_string()) bytes += text.get_ref<const std::string&>().size();
    }
    const auto is_text = [](const ordered_json& text) {
      return text.is_string() && !text.get_ref<const std::string&>().empty();
    };
    if (!std::ranges::all_of(list, is_text)) return AddNote(kKey, "is not a list of texts; ignored");
    if (list.size() > api::kStopStringsMax || bytes > api::kStopBytesMax)
      return AddNote(kKey, "is too long; ignored");
    for (const ordered_json& text : list) defaults_.stop.push_back(text.get<std::string>());
  }

  void ReportOthers() {
    for (const char* key : kNotObeyed) {
      const ordered_json* value = ValueAt(values_, key);
      if (value == nullptr || *value == false || *value == 0 || *value == 1) continue;
      if (!value->is_primitive() && value->empty()) continue;
      AddNote(key, "is read and not obeyed");
    }
  }

  const ModelFiles& files_;
  const bool gguf_;
  const ordered_json& values_;
  const int64_t vocab_size_;
  GenerationDefaults defaults_;
};

}  // namespace

GenerationDefaults ReadGenerationDefaults(const ModelFiles& files, int64_t vocab_size) {
  return Reader(files, vocab_size).Read();
}

}  // namespace quire::runner::weights
