// Sampling options: one struct and one table. The table gives `options` of Ollama requests, Modelfile
// PARAMETERs, the sampling fields of the other dialects, the runner link and the table of docs/api.md.
//
// A new option is a member of OptionSet, its row in VisitOptions() and its use in the runner.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "api/base/ids.h"

namespace quire::api {

// Added to a token's logit. At kLogitBiasMax only tokens with such a bias are sampled, at -kLogitBiasMax the
// token never is.
struct LogitBias {
  TokenId token = 0;
  float bias = 0;
};
inline constexpr float kLogitBiasMax = 100;

// kResolved: every option has a value. Otherwise an absent option means that nothing was specified.
template <bool kResolved>
struct OptionSet {
  template <class T>
  using Value = std::conditional_t<kResolved, T, std::optional<T>>;
  template <class T>
  static constexpr Value<T> Default(T value) {
    if constexpr (kResolved) return value;
    return {};
  }

  Value<int32_t> num_ctx = Default(0);
  Value<int32_t> num_predict = Default(-1);
  Value<int32_t> num_keep = Default(4);
  Value<float> temperature = Default(0.8F);
  Value<int32_t> top_k = Default(40);
  Value<float> top_p = Default(0.9F);
  Value<float> min_p = Default(0.0F);
  Value<float> typical_p = Default(1.0F);
  Value<int32_t> repeat_last_n = Default(64);
  Value<float> repeat_penalty = Default(1.0F);
  Value<float> presence_penalty = Default(0.0F);
  Value<float> frequency_penalty = Default(0.0F);
  Value<float> dry_multiplier = Default(0.0F);
  Value<float> dry_base = Default(1.75F);
  Value<int32_t> dry_allowed_length = Default(2);
  Value<int32_t> dry_penalty_last_n = Default(-1);
  Value<std::vector<std::string>> dry_sequence_breakers =
      Default(std::vector<std::string>{"\n", ":", "\"", "*"});
  Value<float> xtc_probability = Default(0.0F);
  Value<float> xtc_threshold = Default(0.1F);
  Value<float> top_n_sigma = Default(-1.0F);
  Value<int32_t> mirostat = Default(0);
  Value<float> mirostat_tau = Default(5.0F);
  Value<float> mirostat_eta = Default(0.1F);
  Value<int64_t> seed = Default(int64_t{-1});
  Value<int32_t> min_tokens = Default(0);
  Value<bool> ignore_eos = Default(false);
  Value<int32_t> draft_num_predict = Default(-1);
  Value<bool> structured_output_whitespace = Default(true);
  Value<std::vector<std::string>> stop = {};
  Value<std::vector<LogitBias>> logit_bias = {};
  Value<std::vector<TokenId>> stop_token_ids = {};
};

// As a client, a Modelfile PARAMETER or a server default specifies them.
using Options = OptionSet<false>;
using GenerationParams = OptionSet<true>;

// Which requests have an option: as a member of `options` (and as a PARAMETER), or at the top of OpenAI's.
enum class OptionPlace : uint8_t { kOptions, kOpenAi, kBoth };

struct OptionRow {
  std::string_view name;
  OptionPlace place;
  std::string_view help;
  std::optional<int32_t> min = {}, max = {};

  bool in_options() const { return place != OptionPlace::kOpenAi; }
  bool in_openai() const { return place != OptionPlace::kOptions; }
  template <class T>
  T Min() const {
    return min ? static_cast<T>(*min) : std::numeric_limits<T>::lowest();
  }
  template <class T>
  T Max() const {
    return max ? static_cast<T>(*max) : std::numeric_limits<T>::max();
  }
};

// The option table: calls visit(row, member of each set) for every option.
template <class Visit, class... Set>
void VisitOptions(Visit visit, Set&... o) {
  using enum OptionPlace;
  using Row = OptionRow;
  visit(Row{"num_ctx", kOptions, "context in tokens; 0 = the server's default; 1 to 3 count as 4", 0},
        o.num_ctx...);
  visit(Row{"num_predict", kOptions, "maximum tokens to generate; negative = until a stop"},
        o.num_predict...);
  visit(Row{"num_keep", kOptions, "tokens kept when the context is shifted; -1 = the whole prompt", -1},
        o.num_keep...);
  visit(Row{"temperature", kBoth, "0 and below = greedy"}, o.temperature...);
  visit(Row{"top_k", kBoth, "0 and below = off"}, o.top_k...);
  visit(Row{"top_p", kBoth, "1 and above = off", 0}, o.top_p...);
  visit(Row{"min_p", kBoth, "relative to the most likely token; 0 = off", 0, 1}, o.min_p...);
  visit(Row{"typical_p", kOptions, "1 = off", 0}, o.typical_p...);
  visit(Row{"repeat_last_n", kOptions, "window of the penalties in tokens; 0 = off, -1 = num_ctx", -1},
        o.repeat_last_n...);
  visit(Row{"repeat_penalty", kBoth, "0 and 1 = off", 0}, o.repeat_penalty...);
  visit(Row{"presence_penalty", kBoth, "over the window of repeat_last_n"}, o.presence_penalty...);
  visit(Row{"frequency_penalty", kBoth, "over the window of repeat_last_n"}, o.frequency_penalty...);
  visit(Row{"dry_multiplier", kBoth, "penalty of tokens that would repeat a sequence (DRY); 0 = off", 0},
        o.dry_multiplier...);
  visit(Row{"dry_base", kBoth, "growth of that penalty with each repeated token", 1}, o.dry_base...);
  visit(Row{"dry_allowed_length", kBoth, "tokens that may repeat without that penalty", 0},
        o.dry_allowed_length...);
  visit(Row{"dry_penalty_last_n", kBoth, "window of DRY in tokens; 0 = off, -1 = num_ctx", -1},
        o.dry_penalty_last_n...);
  visit(Row{"dry_sequence_breakers", kBoth, "texts that no repeated sequence reaches across"},
        o.dry_sequence_breakers...);
  visit(Row{"xtc_probability", kBoth, "chance of leaving out the most likely tokens (XTC); 0 = off", 0, 1},
        o.xtc_probability...);
  visit(Row{"xtc_threshold", kBoth, "XTC leaves out all but the last token at least this likely", 0, 1},
        o.xtc_threshold...);
  visit(Row{"top_n_sigma", kBoth,
            "logits at most this many standard deviations below the highest; 0 and below = off"},
        o.top_n_sigma...);
  visit(Row{"mirostat", kBoth, "1, 2: Mirostat of that version in place of the other filters; 0 = off", 0, 2},
        o.mirostat...);
  visit(Row{"mirostat_tau", kBoth, "surprise that Mirostat aims at, in bits", 0}, o.mirostat_tau...);
  visit(Row{"mirostat_eta", kBoth, "learning rate of Mirostat", 0, 1}, o.mirostat_eta...);
  visit(Row{"seed", kBoth, "negative = random"}, o.seed...);
  visit(Row{"min_tokens", kBoth, "EOS is not sampled before this many tokens", 0}, o.min_tokens...);
  visit(Row{"ignore_eos", kBoth, "EOS is never sampled"}, o.ignore_eos...);
  visit(Row{"draft_num_predict", kBoth,
            "maximum draft tokens per step; 0 = none, negative = adaptive; never changes an answer"},
        o.draft_num_predict...);
  visit(Row{"structured_output_whitespace", kBoth,
            "false = no white space between the tokens of constrained JSON"},
        o.structured_output_whitespace...);
  visit(Row{"stop", kBoth, "never part of the answer; empty strings are dropped"}, o.stop...);
  visit(Row{"logit_bias", kOpenAi, "added to the logits of these tokens"}, o.logit_bias...);
  visit(Row{"stop_token_ids", kOpenAi, "tokens that end the answer, as EOS does"}, o.stop_token_ids...);
}

// `top` wins wherever it specifies something.
Options Overlay(Options base, const Options& top);

GenerationParams Resolve(const Options& options);

// Options by the position of their row in VisitOptions(), the first is bit 0.
using OptionBits = uint64_t;

// Those that `options` specifies.
OptionBits Specified(const Options& options);
// Without those of `bits`.
Options Without(Options options, OptionBits bits);
// Sets what `options` specifies, as Resolve() does.
void Apply(const Options& options, GenerationParams& params);

}  // namespace quire::api
