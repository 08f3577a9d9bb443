#include "runner/models/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>

#include "runner/models/tensor_binder.h"

namespace quire::runner::models {
namespace {

constexpr double kMaxTheta = 1e15;
constexpr double kMaxFactor = 1e6;

std::vector<double> Frequencies(double theta, int32_t dims) {
  std::vector<double> frequencies;
  frequencies.reserve(static_cast<size_t>(std::max(dims / 2, 0)));
  for (int32_t i = 0; i < dims / 2; ++i) frequencies.push_back(std::pow(theta, -2.0 * i / dims));
  return frequencies;
}

std::vector<float> Rounded(const std::vector<double>& frequencies) {
  return {frequencies.begin(), frequencies.end()};
}

// The names of one rotary parameter wherever configurations put it.
class RopeKeys {
 public:
  explicit RopeKeys(const RopeQuery& query) {
    if (!query.layer_type.empty()) objects_.push_back(fmt::format("rope_parameters/{}", query.layer_type));
    if (query.layer_type.empty() || query.scaled) objects_.emplace_back("rope_parameters");
    if (query.scaled) objects_.emplace_back("rope_scaling");
    scaled_ = query.scaled;
  }

  std::string HuggingFace(std::string_view name) const {
    std::string names;
    for (const std::string& object : objects_) {
      names += fmt::format("{}{}/{}", names.empty() ? "" : "|", object, name);
    }
    return names;
  }
  std::string Gguf(std::string_view name) const {
    return scaled_ && !name.empty() ? fmt::format("rope.scaling.{}", name) : "";
  }

 private:
  std::vector<std::string> objects_;
  bool scaled_ = true;
};

// The name of a member of rope_scaling, or of a type, that newer configurations use.
std::string_view NewName(std::string_view name) {
  return name == "type" ? "rope_type" : name == "su" ? "longrope" : name;
}

bool SaySame(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b) {
  if (!a.is_string() || !b.is_string()) return a == b;
  return NewName(a.get_ref<const std::string&>()) == NewName(b.get_ref<const std::string&>());
}

class RopeReader {
 public:
  RopeReader(ConfigReader& read, const RopeQuery& query) : read_(read), query_(query), keys_(query) {}

  RopeSpec Read() {
    if (query_.required && !read_.gguf() && !read_.Says("rope_parameters") && !read_.Says("rope_scaling")) {
      read_.Fail("the configuration lacks rope_parameters");
    }
    RefuseContradictions();
    const double theta = Theta();
    const std::string type = Type();
    dims_ = Dimensions(type);
    if (dims_ < 2) read_.Fail("the rotary embedding has no dimensions");
    RopeSpec spec;
    if (type == "default") {
      spec.frequencies = Rounded(Frequencies(theta, dims_));
    } else if (type == "linear") {
      std::vector<double> frequencies = Frequencies(theta, dims_);
      const double factor = Factor();
      for (double& f : frequencies) f /= factor;
      spec.frequencies = Rounded(frequencies);
    } else if (type == "llama3") {
      spec.frequencies = Llama3(theta);
    } else if (type == "yarn") {
      spec = Yarn(theta);
    } else if (type == "longrope") {
      spec = LongRope(theta);
    } else if (type == "dynamic" && !read_.gguf() && !query_.fixed_ntk) {
      spec.frequencies = Dynamic(theta);
    } else if (type == "proportional") {
      spec.frequencies = Proportional(theta);
    } else if (type == "ntk" && query_.fixed_ntk) {
      const double factor = Factor(), mixed = Positive("mixed_b", "", 1e3, 1e3);
      spec.frequencies =
          FixedNtkFrequencies(theta, dims_, factor, mixed < 1e3 ? std::optional(mixed) : std::nullopt);
    } else {
      read_.Fail(fmt::format("the rotary embedding type \"{}\" is not supported", type.substr(0, 60)));
    }
    // Part of YaRN's and LongRoPE's magnitude; whatever the type, llama.cpp multiplies by it.
    if (read_.gguf() && type != "yarn" && type != "longrope") {
      spec.magnitude = static_cast<float>(Positive("", "attn_factor", 1e3, 1));
    }
    spec.pairs = read_.gguf() ? query_.gguf_pairs : query_.pairs;
    if (read_.gguf()) Divide(spec.frequencies);
    if (query_.sections != RopeSections::kNone) spec.axes = Axes(spec.frequencies.size());
    return spec;
  }

 private:
  // Programs differ in which of two objects they follow.
  void RefuseContradictions() {
    const auto *scaling = read_.FindOrNull("rope_scaling"), *parameters = read_.FindOrNull("rope_parameters");
    if (scaling == nullptr || parameters == nullptr || !scaling->is_object() || !parameters->is_object())
      return;
    for (const auto& [name, value] : scaling->items()) {
      const auto found = parameters->find(NewName(name));
      if (value.is_null() || found == parameters->end() || found->is_null()) continue;
      if (SaySame(*found, value)) continue;
      read_.Fail(fmt::format("rope_scaling/{} and rope_parameters/{} contradict each other",
                             name.substr(0, 60), NewName(name).substr(0, 60)));
    }
  }

  double Positive(std::string_view hugging_face, std::string_view gguf, double high,
                  std::optional<double> fallback) {
    return read_.Positive({keys_.HuggingFace(hugging_face), keys_.Gguf(gguf)}, high, fallback);
  }
  double Factor() { return Positive("factor", "factor", kMaxFactor, std::nullopt); }

  double Theta() {
    const std::string name = fmt::format("{}|{}", keys_.HuggingFace("rope_theta"), query_.theta.hugging_face);
    const auto fallback = query_.default_theta > 0 ? std::optional(query_.default_theta) : std::nullopt;
    const double read = read_.Positive({name, query_.theta.gguf}, kMaxTheta, fallback);
    return query_.base.value_or(read);
  }

  std::string Type() {
    const std::string name = fmt::format("{}|{}", keys_.HuggingFace("rope_type"), keys_.HuggingFace("type"));
    const std::string type(NewName(read_.Text({name, keys_.Gguf("type")}, "default")));
    // Its GGUF files name no type.
    if (read_.gguf() && read_.files().Find("rope_factors_long.weight") != nullptr) return "longrope";
    // Positions of text are the same in all of an mrope's sections.
    if (type == "xdrope") return "dynamic";
    return type == "none" || type == "mrope" ? "default" : type;
  }

  int32_t Dimensions(const std::string& type) {
    const int32_t all = query_.head_dim;
    if (read_.gguf()) {
      const int32_t stored = std::min(all, read_.Small(query_.dimensions, 2, kernels::kMaxHeadDim, all));
      return static_cast<int32_t>(stored * query_.gguf_partial) / 2 * 2;
    }
    const std::string name =
        fmt::format("{}|partial_rotary_factor|rotary_pct", keys_.HuggingFace("partial_rotary_factor"));
    const double read = read_.Positive({name, ""}, 1, query_.default_partial);
    partial_ = query_.partial.value_or(read);
    if (partial_ != 1 && !query_.partial && !query_.partial_allowed && type != "proportional") {
      read_.Fail("partial_rotary_factor: only 1 is supported for this family");
    }
    if (type == "proportional") return all;
    const auto rotated = static_cast<int32_t>(partial_ * all);
    if (rotated % 2 != 0)
      read_.Fail(fmt::format("partial_rotary_factor: {} of {} elements are not pairs", rotated, all));
    return rotated / 2 * 2;
  }

  // With an alpha, theta grows once, whatever the length of a text. Without, it grows with texts beyond the
  // context of the configuration, which no sequence exceeds.
  std::vector<float> Dynamic(double theta) {
    const bool alpha = read_.Find({keys_.HuggingFace("alpha"), ""}) != nullptr;
    if (!alpha) (void)Factor();
    return Rounded(Frequencies(alpha ? StretchedTheta(theta) : theta, dims_));
  }
  double StretchedTheta(double theta) {
    // Written beside alpha, and without a meaning.
    for (const char* name : {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) {
      (void)read_.Find({keys_.HuggingFace(name), ""});
    }
    const double dims = std::max(dims_, 4);
    return theta * std::pow(Positive("alpha", "", kMaxFactor, 1), dims / (dims - 2));
  }

  std::vector<float> Llama3(double theta) {
    Llama3Scaling scaling;
    scaling.factor = Factor();
    scaling.low_freq_factor = Positive("low_freq_factor", "", kMaxFactor, std::nullopt);
    scaling.high_freq_factor = Positive("high_freq_factor", "", kMaxFactor, std::nullopt);
    scaling.original_context = OriginalContext();
    if (scaling.high_freq_factor <= scaling.low_freq_factor) {
      read_.Fail("high_freq_factor is not above low_freq_factor");
    }
    return Llama3Frequencies(theta, dims_, scaling);
  }

  double OriginalContext() {
    const double context = read_.Positive({"max_position_embeddings", "context_length"}, 1e9, 1e9);
    const std::string name =
        keys_.HuggingFace("original_max_position_embeddings") + "|" + "original_max_position_embeddings";
    return read_.Positive({name, keys_.Gguf("original_context_length")}, 1e9, context);
  }

  RopeSpec Yarn(double theta) {
    YarnScaling scaling;
    scaling.factor = Factor();
    scaling.original_context = OriginalContext();
    scaling.beta_fast = Positive("beta_fast", "yarn_beta_fast", 1e6, 32);
    scaling.beta_slow = Positive("beta_slow", "yarn_beta_slow", 1e6, 1);
    scaling.truncate = read_.Boolean({keys_.HuggingFace("truncate"), keys_.Gguf("yarn_truncate")},
                                     !read_.gguf() || query_.gguf_truncate);
    RopeSpec spec{.frequencies = YarnFrequencies(theta, dims_, scaling), .magnitude = 1};
    const auto growth = [&](double share) {
      return 0.1 * share * std::log(std::max(scaling.factor, 1.0)) + 1;
    };
    double magnitude = growth(1);
    if (read_.gguf()) {
      // The scores grow instead: latent_attention.cc.
      if (read_.Find({"", keys_.Gguf("yarn_log_multiplier")}) != nullptr) magnitude = 1;
      magnitude *= Positive("", "attn_factor", 1e3, 1);
    } else {
      // As in the reference, 0 counts as absent.
      const auto given = [&](const char* name) {
        const auto* value = read_.Find({keys_.HuggingFace(name), ""});
        return value != nullptr && !(value->is_number() && value->get<double>() == 0);
      };
      if (given("mscale") && given("mscale_all_dim")) {
        magnitude = growth(Positive("mscale", "", 1e3, 1)) / growth(Positive("mscale_all_dim", "", 1e3, 1));
      }
      magnitude = Positive("attention_factor", "", 1e3, magnitude);
    }
    spec.magnitude = static_cast<float>(magnitude);
    return spec;
  }

  // One divisor per frequency for each of two lengths of the context.
  RopeSpec LongRope(double theta) {
    (void)read_.Find({keys_.HuggingFace("factor"), ""});  // follows from the two contexts, where they differ
    const double original = OriginalContext();
    const double context = read_.Positive({"max_position_embeddings", "context_length"}, 1e9, original);
    const double growth = read_.gguf() || original != context ? context / original
                                                              : Positive("factor", "factor", kMaxFactor, 1);
    double magnitude = growth <= 1 ? 1 : std::sqrt(1 + std::log(growth) / std::log(original));
    magnitude = Positive("attention_factor", "attn_factor", 1e3, magnitude);
    return {.frequencies = Divided(theta, "long_factor", "rope_factors_long.weight"),
            .magnitude = static_cast<float>(Positive("long_mscale", "", 1e3, magnitude)),
            .short_frequencies = Divided(theta, "short_factor", "rope_factors_short.weight"),
            .short_magnitude = static_cast<float>(Positive("short_mscale", "", 1e3, magnitude)),
            .short_context = static_cast<int64_t>(original)};
  }

  std::vector<float> Divided(double theta, const char* key, const char* tensor) {
    std::vector<double> frequencies = Frequencies(theta, dims_);
    std::vector<double> divisors(frequencies.size(), 1);
    if (read_.gguf()) {
      TensorBinder bind(read_.files());
      const std::vector<float> stored =
          bind.Outside().Values({"", tensor}, static_cast<int64_t>(frequencies.size()));
      if (bind.error()) {
        read_.Fail(fmt::format("tensor {} does not have one divisor per rotary frequency", tensor));
      } else {
        divisors.assign(stored.begin(), stored.end());
      }
    } else {
      divisors = read_.Numbers({keys_.HuggingFace(key), ""}, divisors.size(), kMaxFactor);
    }
    // The reference multiplies and divides in float32.
    std::vector<float> rounded(frequencies.size());
    for (size_t i = 0; i < rounded.size(); ++i) {
      rounded[i] = 1.0F / (static_cast<float>(divisors[i]) * static_cast<float>(1 / frequencies[i]));
    }
    return rounded;
  }

  // Only the first share of the pairs is rotated, with the frequencies of a full rotation.
  std::vector<float> Proportional(double theta) {
    std::vector<double> frequencies = Frequencies(theta, dims_);
    const double factor = Positive("factor", "", kMaxFactor, 1);
    const auto turning = static_cast<size_t>(partial_ * dims_ / 2);
    for (size_t i = 0; i < frequencies.size(); ++i)
      frequencies[i] = i < turning ? frequencies[i] / factor : 0;
    return Rounded(frequencies);
  }

  // The axis of each pair.
  std::vector<uint8_t> Axes(size_t pairs) {
    const std::string name = keys_.HuggingFace("mrope_section");
    const ConfigKey key = {name, "rope.dimension_sections|rope.mrope_section|mrope_sections"};
    const auto all = static_cast<int64_t>(pairs);
    std::array<int64_t, 3> sections = {};
    std::ranges::transform(query_.given_sections, sections.begin(),
                           [all](int32_t given) { return std::min<int64_t>(given, all); });
    if (const auto* const list = read_.Find(key); list != nullptr) {
      for (size_t i = 0; i < 3; ++i) {
        const bool given = list->is_array() && i < list->size();
        sections[i] = given ? ConfigReader::WholeNumber((*list)[i]).value_or(-1) : -1;
      }
    }
    const bool fit = std::ranges::all_of(sections, [all](int64_t n) { return n >= 0 && n <= all; });
    const bool contiguous = query_.sections == RopeSections::kContiguous;
    std::vector<uint8_t> axes(pairs, 0);
    if (!fit || (contiguous && sections[0] + sections[1] + sections[2] != all)) {
      read_.Fail(fmt::format("{}: the sections [{}, {}, {}] do not share {} pairs", read_.Name(key),
                             sections[0], sections[1], sections[2], pairs));
      return axes;
    }
    for (int64_t i = 0; i < all; ++i) {
      const auto turn = static_cast<size_t>(i % 3);
      if (contiguous) {
        axes[static_cast<size_t>(i)] = i < sections[0] ? 0 : i < sections[0] + sections[1] ? 1 : 2;
      } else if (i < 3 * sections[turn]) {
        axes[static_cast<size_t>(i)] = static_cast<uint8_t>(turn);
      }
    }
    return axes;
  }

  // GGUF stores the effect of llama3 and proportional scaling on a frequency as a divisor.
  void Divide(std::vector<float>& frequencies) {
    TensorBinder bind(read_.files());
    const TensorScope files = bind.Outside();
    if (!query_.scaled || !files.Has({"", "rope_freqs.weight"})) return;
    // Some files have entries for a whole head that is rotated in part.
    const auto* const stored = read_.files().Find("rope_freqs.weight");
    const int64_t whole = query_.head_dim / 2;
    const bool padded = stored->shape.size() == 1 && static_cast<int64_t>(stored->shape[0]) == whole;
    const std::vector<float> divisors =
        files.Values({"", "rope_freqs.weight"}, padded ? whole : static_cast<int64_t>(frequencies.size()));
    if (bind.error())
      return read_.Fail("tensor rope_freqs.weight does not have one divisor per rotary frequency");
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= divisors[i];
  }

  ConfigReader& read_;
  const RopeQuery& query_;
  RopeKeys keys_;
  double partial_ = 1;
  int32_t dims_ = 0;
};

}  // namespace

std::vector<float> Llama3Frequencies(double theta, int32_t dims, const Llama3Scaling& scaling) {
  std::vector<double> frequencies = Frequencies(theta, dims);
  const double low = scaling.low_freq_factor, high = scaling.high_freq_factor;
  for (double& f : frequencies) {
    const double wave_length = 2 * std::numbers::pi / f;
    if (wave_length < scaling.original_context / high) continue;
    if (wave_length > scaling.original_context / low) {
      f /= scaling.factor;
    } else {
      const double smooth = (scaling.original_context / wave_length - low) / (high - low);
      f = (1 - smooth) * f / scaling.factor + smooth * f;
    }
  }
  return Rounded(frequencies);
}

std::vector<float> YarnFrequencies(double theta, int32_t dims, const YarnScaling& scaling) {
  // The dimension whose wave fits `turns` times into the original context.
  const auto dimension_of = [&](double turns) {
    return dims * std::log(scaling.original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = dimension_of(scaling.beta_fast), high = dimension_of(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1.0);
  if (low == high) high += 0.001;
  std::vector<double> frequencies = Frequencies(theta, dims);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= (1 - stretched) + stretched / scaling.factor;
  }
  return Rounded(frequencies);
}

std::vector<float> FixedNtkFrequencies(double theta, int32_t dims, double factor,
                                       std::optional<double> mixed) {
  std::vector<double> frequencies = Frequencies(mixed ? theta : theta * factor, dims);
  const double growth = mixed ? std::log(factor) / std::pow(dims / 2.0, *mixed) : 0;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] /= mixed ? std::exp(growth * std::pow(static_cast<double>(i + 1), *mixed))
                            : std::pow(factor, 2.0 / dims);
  }
  return Rounded(frequencies);
}

RopeSpec ReadRope(ConfigReader& read, const RopeQuery& query) { return RopeReader(read, query).Read(); }

void RotaryEmbedding::SetContext(int64_t tokens) {
  if (spec_.short_frequencies.empty() || tokens > spec_.short_context) return;
  spec_.frequencies = spec_.short_frequencies;
  spec_.magnitude = spec_.short_magnitude;
}

void RotaryEmbedding::Prepare(const ForwardContext& ctx) {
  const auto size = static_cast<int64_t>(ctx.work.positions.size() * spec_.frequencies.size());
  cos_ = cos_memory_.Get(size);
  sin_ = sin_memory_.Get(size);
  const auto& [time, height, width] = ctx.batch.rope_positions;
  if (time.empty() || spec_.axes.empty()) {
    return kernels::RopeTable(ctx.pool, ctx.work.positions, spec_.frequencies, cos_, sin_, spec_.magnitude);
  }
  kernels::RopeTable(ctx.pool, {time, height, width}, spec_.axes, spec_.frequencies, cos_, sin_,
                     spec_.magnitude);
}

void RotaryEmbedding::Apply(const ForwardContext& ctx, int32_t head_dim, std::span<float> x) const {
  kernels::Rope(ctx.pool, cos_, sin_, static_cast<int64_t>(spec_.frequencies.size()), head_dim, ctx.rows(), x,
                spec_.pairs);
}

void RotaryEmbedding::Shift(int64_t shift, int32_t head_dim, std::span<float> keys) const {
  ThreadPool alone(1);
  std::vector<float> cos(spec_.frequencies.size()), sin(cos.size());
  kernels::RopeTable(alone, std::span(&shift, 1), spec_.frequencies, cos, sin);
  // Keys stored with adjacent pairs have been left as halves.
  const auto pairs =
      spec_.pairs == kernels::RopePairs::kInterleaved ? spec_.pairs : kernels::RopePairs::kHalves;
  kernels::Rope(alone, cos, sin, static_cast<int64_t>(cos.size()), head_dim, 1, keys, pairs);
}

}  // namespace quire::runner::models
