#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "runner/weights/dialects/gguf_edits.h"

namespace quire::runner::weights {
namespace {

constexpr int64_t kMtpLayersMax = 64;
constexpr std::string_view kMtpLayer = "mtp.layers.";

// The tensors that all MTP layers share, and their names in the first.
constexpr std::pair<std::string_view, std::string_view> kSharedMtp[] = {
    {"mtp.fc.weight", "nextn.eh_proj.weight"},
    {"mtp.pre_fc_norm_embedding.weight", "nextn.enorm.weight"},
    {"mtp.pre_fc_norm_hidden.weight", "nextn.hnorm.weight"},
    {"mtp.embed_tokens.weight", "nextn.embed_tokens.weight"},
    {"mtp.shared_head.head.weight", "nextn.shared_head_head.weight"},
    {"mtp.shared_head.norm.weight", "nextn.shared_head_norm.weight"},
    {"mtp.norm.weight", "nextn.shared_head_norm.weight"},
};

// "7.rest" as 7 and "rest".
std::optional<std::pair<int64_t, std::string_view>> NumberAndRest(std::string_view text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || number < 0 || read.ptr == end || *read.ptr != '.') return std::nullopt;
  return std::pair(number, text.substr(static_cast<size_t>(read.ptr - text.data()) + 1));
}

struct MtpTensor {
  int64_t layer = 0;
  std::string_view name;  // after "mtp.layers.N."
};

std::optional<MtpTensor> MtpTensorOf(std::string_view name) {
  if (!name.starts_with(kMtpLayer)) return std::nullopt;
  const auto parts = NumberAndRest(name.substr(kMtpLayer.size()));
  return parts ? std::optional(MtpTensor{parts->first, parts->second}) : std::nullopt;
}

// Experts one by one get the names that llama.cpp gave them before it stacked them.
std::string NameInBlock(std::string_view name) {
  constexpr std::string_view kExperts = "mlp.experts.";
  if (!name.starts_with(kExperts)) return std::string(name);
  const auto parts = NumberAndRest(name.substr(kExperts.size()));
  if (!parts) return std::string(name);
  for (const auto& [other, ours] : {std::pair<std::string_view, std::string_view>{"gate_proj", "ffn_gate"},
                                    {"up_proj", "ffn_up"},
                                    {"down_proj", "ffn_down"}}) {
    if (parts->second == std::string(other) + ".weight")
      return fmt::format("{}.{}.weight", ours, parts->first);
  }
  return std::string(name);
}

bool IsZeroCentered(std::string_view name) {
  return name.ends_with("_norm.weight") || name.ends_with(".nextn.enorm.weight") ||
         name.ends_with(".nextn.hnorm.weight");
}

// Edits of one file; the steps share what the file says of its layers.
class QwenNext {
 public:
  explicit QwenNext(const GgufView& view) : view_(view) {}

  api::Result<GgufEdits> Detect() {
    for (const auto step : {&QwenNext::HeadOrder, &QwenNext::Layers, &QwenNext::KvHeads, &QwenNext::Mtp}) {
      if (auto done = (this->*step)(); !done) return std::unexpected(done.error());
    }
    TimeBias();
    edits_.Alias(view_, view_.Key("norm_top_k_prob"), view_.Key("expert_weights_norm"));
    return std::move(edits_);
  }

 private:
  // Qwen3.5 files tile the value heads over the key heads, Qwen3-Next files group them.
  api::Result<void> HeadOrder() {
    const std::string key = view_.Key("ssm.v_head_reordered");
    const auto* value = view_.Find(key);
    if (value == nullptr || !value->is_boolean()) return {};
    const bool tiled = view_.architecture() != "qwen3next";
    if (value->get<bool>() == tiled) return {};
    return Contradiction(
        key, fmt::format("is {}, which files of {} are not", value->get<bool>(), view_.architecture()));
  }

  api::Result<void> Layers() {
    layers_ = view_.Integer(view_.Key("block_count")).value_or(0);
    const int64_t predicting = view_.Integer(view_.Key("nextn_predict_layers")).value_or(0);
    if (predicting < 0 || predicting > kMtpLayersMax || predicting > layers_) {
      return Contradiction(view_.Key("nextn_predict_layers"), fmt::format("is {}", predicting));
    }
    layers_ -= predicting;
    predicting_ = predicting;
    return {};
  }

  // A number per layer, 0 for those that do not attend, becomes one number and a list of those layers.
  api::Result<void> KvHeads() {
    const std::string key = view_.Key("attention.head_count_kv");
    const auto* counts = view_.Array(key);
    if (counts == nullptr) return {};
    const auto size = static_cast<int64_t>(counts->size());
    if (size != layers_ && size != layers_ + predicting_) {
      return Contradiction(key, fmt::format("{} numbers for {} layers", size, layers_));
    }
    int64_t heads = 0;
    for (const auto& count : *counts) {
      const int64_t number = count.is_number_integer() ? count.get<int64_t>() : -1;
      if (number < 0 || (number != 0 && heads != 0 && number != heads)) {
        return Contradiction(key, "layers with different numbers of heads");
      }
      recurrent_.push_back(number == 0);
      heads = std::max(heads, number);
    }
    if (heads == 0) return Contradiction(key, "no layer has KV heads");
    if (auto same = CheckKinds(key); !same) return same;
    edits_.Set(key, heads, "a number per layer, of which the zeros mark delta nets");
    return {};
  }

  api::Result<void> CheckKinds(const std::string& key) const {
    const auto differs = [&](const std::string& other, int64_t layer) {
      return Contradiction(key, fmt::format("and {} name different layers: {}", other, layer));
    };
    const std::string stated = view_.Key("attention.recurrent_layers");
    const std::string interval = view_.Key("full_attention_interval");
    const auto* flags = view_.Array(stated);
    const int64_t every = flags == nullptr ? view_.Integer(interval).value_or(0) : 0;
    for (int64_t i = 0; i < layers_; ++i) {
      const auto at = static_cast<size_t>(i);
      if (flags != nullptr && (at >= flags->size() || (*flags)[at] != recurrent_[at]))
        return differs(stated, i);
      if (every > 0 && ((i + 1) % every != 0) != recurrent_[at]) return differs(interval, i);
    }
    return {};
  }

  void TimeBias() {
    const size_t before = edits_.tensors.size();
    for (const Tensor& tensor : view_.tensors()) {
      if (!tensor.name.ends_with(".ssm_dt")) continue;
      edits_.tensors.push_back({.from = tensor.name, .to = tensor.name + ".bias"});
    }
    if (edits_.tensors.size() > before) edits_.notes.emplace_back("tensors *.ssm_dt: read as *.ssm_dt.bias");
  }

  api::Result<void> Mtp() {
    int64_t added = 0;
    if (view_.HasTensorsOf("mtp.") && !HasOwnMtp()) {
      auto found = MtpLayers();
      if (!found) return std::unexpected(found.error());
      added = *found;
      if (predicting_ != 0 && predicting_ != added) {
        return Contradiction(view_.Key("nextn_predict_layers"),
                             fmt::format("is {}, but the file has {} layers mtp.*", predicting_, added));
      }
      RenameMtp(added);
      edits_.Set(view_.Key("nextn_predict_layers"), added, "counted from the tensors mtp.*");
      edits_.Set(view_.Key("block_count"), layers_ + added, "with the layers mtp.*");
    }
    SetKinds(std::max(added, predicting_));
    return {};
  }

  bool HasOwnMtp() const {
    return std::ranges::any_of(view_.tensors(), [](const Tensor& tensor) {
      return tensor.name.starts_with("blk.") && tensor.name.find(".nextn.") != std::string::npos;
    });
  }

  api::Result<int64_t> MtpLayers() const {
    int64_t layers = 1;
    for (const Tensor& tensor : view_.tensors()) {
      const auto mtp = MtpTensorOf(tensor.name);
      if (!mtp) continue;
      if (mtp->layer >= kMtpLayersMax) return Contradiction(tensor.name, "too many MTP layers");
      layers = std::max(layers, mtp->layer + 1);
    }
    return layers;
  }

  void RenameMtp(int64_t count) {
    const auto rename = [this](std::string_view from, std::string to) {
      const bool centered = IsZeroCentered(to);
      edits_.tensors.push_back({.from = std::string(from), .to = std::move(to), .plus_one = centered});
    };
    for (const Tensor& tensor : view_.tensors()) {
      const auto mtp = MtpTensorOf(tensor.name);
      if (!mtp) continue;
      rename(tensor.name, fmt::format("blk.{}.{}", layers_ + mtp->layer, NameInBlock(mtp->name)));
    }
    for (const auto& [from, to] : kSharedMtp) {
      if (view_.FindTensor(from) != nullptr) rename(from, fmt::format("blk.{}.{}", layers_, to));
    }
    edits_.notes.push_back(fmt::format("tensors mtp.*: read as blk.{}.* and their norms as zero-centered{}",
                                       layers_, count > 1 ? "; only the first layer predicts" : ""));
  }

  // The layers that attend, where they are known by name: those of the MTP attend too.
  void SetKinds(int64_t predicting) {
    const std::string key = view_.Key("attention.recurrent_layers");
    const auto* stated = view_.Array(key);
    const auto whole = static_cast<size_t>(layers_ + predicting);
    if (stated != nullptr && std::ssize(*stated) == layers_ && predicting > 0) {
      recurrent_.clear();
      for (const auto& flag : *stated) recurrent_.push_back(flag == true);
    } else if (stated != nullptr || recurrent_.empty()) {
      return;
    }
    recurrent_.resize(whole, false);
    edits_.Set(key, recurrent_, "from the layers' KV heads");
  }

  const GgufView& view_;
  int64_t layers_ = 0;      // without those of the MTP
  int64_t predicting_ = 0;  // stated
  std::vector<bool> recurrent_;
  GgufEdits edits_;
};

}  // namespace

api::Result<GgufEdits> DetectQwenNext(const GgufView& view) {
  const std::string& architecture = view.architecture();
  if (architecture != "qwen35" && architecture != "qwen35moe" && architecture != "qwen3next") {
    return GgufEdits();
  }
  return QwenNext(view).Detect();
}

}  // namespace quire::runner::weights
