// The table of the vision towers' families, and loading one of them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/kernels/key_value.h"
#include "runner/models/decoder_config.h"
#include "runner/models/panel_store.h"
#include "runner/models/tensor_binder.h"
#include "runner/models/vision_families.h"
#include "runner/models/vision_tower.h"
#include "runner/weights/model_files_overlay.h"

namespace quire::runner::models {
namespace {

using weights::ModelFiles;

struct VisionFamily {
  std::string_view hugging_face;  // model types, "|" between them
  std::string_view projector;     // clip.projector_type, likewise
  std::string_view blob;          // general.architecture of files with the text model and the tower
  VisionPlan (*read)(VisionConfig&);
};

constexpr std::array kVisionFamilies = {
    VisionFamily{"gemma3", "gemma3", "gemma3", ReadGemma3Vision},
    VisionFamily{"gemma4", "gemma4v", "gemma4", ReadGemma4Vision},
    VisionFamily{"smolvlm|idefics3", "idefics3", "", ReadIdefics3Vision},
    VisionFamily{"mistral3|llava", "pixtral", "mistral3", ReadPixtralVision},
    VisionFamily{"qwen2_vl|qwen2_5_vl", "qwen2vl_merger|qwen2.5vl_merger", "qwen25vl", ReadQwen2Vision},
    VisionFamily{"lfm2_vl|lfm2-vl", "lfm2", "lfm2|lfm2moe", ReadLfm2Vision},
    VisionFamily{"qwen3_vl|qwen3_vl_moe|qwen3_5|qwen3_5_moe", "qwen3vl_merger",
                 "qwen3vl|qwen3vlmoe|qwen35|qwen35moe", ReadQwen3Vision},
};

bool ListHas(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t bar = list.find('|');
    if (list.substr(0, bar) == name) return true;
    list = bar == std::string_view::npos ? std::string_view() : list.substr(bar + 1);
  }
  return false;
}

std::string TextOf(const nlohmann::ordered_json& config, std::string_view key) {
  const auto found = config.find(key);
  return found != config.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool HoldsTower(const ModelFiles& files) {
  if (files.format() == weights::Format::kGguf) {
    return std::ranges::any_of(files.tensors(), [](const weights::Tensor& tensor) {
      return tensor.name.starts_with("v.patch_") || tensor.name.starts_with("v.blk.0.");
    });
  }
  const auto vision = files.config().find("vision_config");
  if (vision == files.config().end() || !vision->is_object()) return false;
  return std::ranges::any_of(files.tensors(), [](const weights::Tensor& tensor) {
    return tensor.name.find("vision") != std::string::npos || tensor.name.find("visual") != std::string::npos;
  });
}

std::string ProjectorType(const ModelFiles& projector) {
  const std::string type = TextOf(projector.config(), "clip.vision.projector_type");
  return type.empty() ? TextOf(projector.config(), "clip.projector_type") : type;
}

std::vector<float> TransposedTable(const std::vector<float>& stored, size_t rows, size_t columns) {
  if (stored.empty()) return {};  // there was an error
  std::vector<float> turned(stored.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) turned[c * rows + r] = stored[r * columns + c];
  }
  return turned;
}

// Binds what a plan names.
class VisionBinder {
 public:
  VisionBinder(TensorBinder& bind, const VisionPlan& plan) : bind_(bind), plan_(plan) {}

  PatchTowerParts Bind() {
    PatchTowerParts parts{.form = plan_.tower, .patches = {}, .positions = {}, .projector = {}};
    const TensorScope scope = bind_.Named(plan_.encoder.names.prefix);
    const int64_t hidden = plan_.encoder.hidden;
    parts.patches = Made(Patches(scope), hidden, plan_.tower.patch_values());
    if (!plan_.patch_bias.gguf.empty()) parts.patches.bias = scope.Values(plan_.patch_bias, hidden);
    parts.positions = {.grid = plan_.grid, .side = plan_.side, .width = hidden, .values = {}};
    if (plan_.grid != PositionGrid::kNone) {
      const int64_t rows = plan_.grid == PositionGrid::kSum ? 2 : plan_.side;
      parts.positions.values = scope.Table(plan_.positions, rows * plan_.side, hidden);
    }
    parts.projector = Projector(plan_.projector);
    for (const ProjectorPlan& tap : plan_.tap_projectors) parts.tap_projectors.push_back(Projector(tap));
    parts.made = std::move(made_);
    return parts;
  }

 private:
  // [hidden, patch_values], in the order of Tile's values.
  std::vector<float> Patches(const TensorScope& scope) const {
    const int64_t hidden = plan_.encoder.hidden, values = plan_.tower.patch_values();
    std::vector<float> stored = scope.Table(plan_.patches, hidden, plan_.frames * values);
    if (scope.failed()) return {};
    const size_t pixels = static_cast<size_t>(values) / 3, frames = static_cast<size_t>(plan_.frames);
    std::vector<float> kernel(static_cast<size_t>(hidden * values));
    for (size_t channel = 0; channel < kernel.size() / pixels; ++channel) {
      for (size_t frame = 0; frame < frames; ++frame) {
        for (size_t i = 0; i < pixels; ++i) {
          kernel[channel * pixels + i] += stored[(channel * frames + frame) * pixels + i];
        }
      }
    }
    if (scope.Has(plan_.more_patches) && !plan_.more_patches.gguf.empty()) {
      const std::vector<float> more = scope.Table(plan_.more_patches, hidden, values);
      for (size_t i = 0; i < more.size(); ++i) kernel[i] += more[i];
    }
    if (plan_.colors_last == plan_.colors_last_in_file) return kernel;
    const size_t rows = plan_.colors_last ? 3 : pixels, columns = plan_.colors_last ? pixels : 3;
    std::vector<float> ordered;
    ordered.reserve(kernel.size());
    for (size_t at = 0; at < kernel.size(); at += 3 * pixels) {
      const std::vector<float> one =
          TransposedTable({kernel.data() + at, kernel.data() + at + 3 * pixels}, rows, columns);
      ordered.insert(ordered.end(), one.begin(), one.end());
    }
    return ordered;
  }

  // A layer of numbers that no file has.
  Linear Made(std::vector<float> numbers, int64_t out, int64_t in) {
    if (bind_.error()) return {};
    made_.push_back(std::move(numbers));
    const kernels::Matrix matrix{.data = reinterpret_cast<const std::byte*>(made_.back().data()),
                                 .type = weights::DataType::kF32,
                                 .out = out,
                                 .in = in};
    Linear linear{.weight = bind_.InPanels(matrix, WeightUse::kMade), .bias = {}};
    if (linear.weight.panels != nullptr) made_.pop_back();
    return linear;
  }

  static Norm NormOf(const TensorScope& scope, const NormPlan& plan, int64_t size) {
    Norm norm{.kind = plan.kind, .weight = {}, .bias = {}, .eps = plan.eps};
    if (plan.plain) norm.weight.assign(static_cast<size_t>(size), 1.0F);
    if (plan.name.gguf.empty()) return norm;
    norm.weight = scope.Norm(plan.name, size);
    if (norm.kind == NormKind::kLayer) norm.bias = scope.BiasOf(plan.name, size, Bias::kPresent);
    if (norm.kind == NormKind::kZeroCenteredRms && !scope.gguf()) {
      for (float& weight : norm.weight) weight += 1;
    }
    return norm;
  }

  VisionProjector Projector(const ProjectorPlan& plan) {
    const TensorScope scope = bind_.Named(plan.prefix);
    VisionProjector made;
    made.join = plan.join;
    made.side = plan.side;
    made.scale = plan.scale;
    made.activation = plan.activation;
    const int64_t hidden = plan_.encoder.hidden, text = plan_.tower.text_hidden;
    int64_t width = plan.join == PatchJoin::kMean ? hidden : made.patches() * hidden;
    made.before = NormOf(scope, plan.before, hidden);
    if (!plan.shift.gguf.empty()) {
      made.shift = scope.Values(plan.shift, width);
      made.stretch = scope.Values(plan.stretch, width);
    }
    made.after = NormOf(scope, plan.after, width);
    if (!plan.fold.gguf.empty()) {
      made.fold = scope.BindLinear(plan.fold, hidden, width);
      width = hidden;
    }
    if (!plan.first.gguf.empty()) {
      const int64_t inner = plan.inner == 0 ? text : plan.inner;
      made.first = scope.BindLinear(plan.first, inner, width, plan.bias);
      width = inner;
    }
    if (plan.out_is_turned) {
      made.out = Made(TransposedTable(scope.Table(plan.out, width, text), static_cast<size_t>(width),
                                      static_cast<size_t>(text)),
                      text, width);
    } else {
      made.out = scope.BindLinear(plan.out, text, width, plan.bias);
    }
    return made;
  }

  TensorBinder& bind_;
  const VisionPlan& plan_;
  MadeWeights made_;
};

// As some tools named them: the layer with the larger output is the first one.
void FixLegacyNames(const ModelFiles& files, EncoderForm& form) {
  const weights::Tensor* down = files.Find("v.blk.0.ffn_down.weight");
  if (down == nullptr || down->shape.size() != 2 || form.names.down.gguf != "ffn_down" || form.gated) return;
  if (form.feed_forward != form.hidden && down->shape[0] == form.feed_forward) {
    std::swap(form.names.up.gguf, form.names.down.gguf);
  }
}

// The files with kernels and tables as matrices, whatever number of dimensions they are stored with.
std::shared_ptr<const ModelFiles> Flattened(std::shared_ptr<const ModelFiles> files, const VisionPlan& plan) {
  const bool gguf = files->format() == weights::Format::kGguf;
  const int64_t hidden = plan.encoder.hidden, values = plan.tower.patch_values();
  std::vector<weights::Tensor> tensors = files->tensors();
  const auto flatten = [&](TensorName name, int64_t rows, int64_t columns) {
    const std::string full =
        fmt::format("{}{}", plan.encoder.names.prefix, gguf ? name.gguf : name.hugging_face);
    const auto found = std::ranges::find(tensors, full, &weights::Tensor::name);
    if (found != tensors.end() && found->elements() == rows * columns) found->shape = {rows, columns};
  };
  flatten(plan.patches, hidden, plan.frames * values);
  flatten(plan.more_patches, hidden, values);
  flatten(plan.positions, (plan.grid == PositionGrid::kSum ? 2 : plan.side) * int64_t{plan.side}, hidden);
  const int64_t panel_bytes_max = files->panel_bytes_max();
  const bool metadata_only = files->metadata_only();
  return std::make_shared<weights::ModelFilesOverlay>(std::move(files), std::move(tensors), nullptr,
                                                      metadata_only, nullptr, panel_bytes_max);
}

api::Result<std::unique_ptr<VisionTower>> LoadPatchTower(std::shared_ptr<const ModelFiles> files,
                                                         const VisionFamily& family, bool blob,
                                                         int32_t text_hidden) {
  const bool gguf = files->format() == weights::Format::kGguf;
  std::shared_ptr<const ModelFiles> vision_files = files;
  if (!gguf) {
    vision_files = std::make_shared<weights::ModelFilesOverlay>(
        files, files->tensors(), nullptr, files->metadata_only(),
        std::make_shared<nlohmann::ordered_json>(files->config().at("vision_config")));
  }
  ConfigReader model(*files), vision(*vision_files);
  VisionConfig config{.model = gguf ? vision : model, .vision = vision, .blob = blob};
  VisionPlan plan = family.read(config);
  plan.tower.text_hidden = text_hidden;
  vision.Ignore({"vision_use_head", "num_channels", "in_channels", "in_chans", "spatial_patch_size",
                 "tokens_per_second", "size", "max_image_size", "use_base_siglip", "tie_word_embeddings",
                 "num_image_tokens", "projection_dim", "projector_hidden_act", "length_penalty", "num_beams",
                 "num_beam_groups", "num_return_sequences", "typical_p", "early_stopping"});
  if (!vision.error()) vision.RefuseUnreadKeys();
  for (const ConfigReader* read : {&vision, &model}) {
    if (read->error()) return std::unexpected(*read->error());
  }
  if (gguf) FixLegacyNames(*files, plan.encoder);
  files = Flattened(std::move(files), plan);
  PanelStore* const panels = AttachPanels(&files);
  TensorBinder bind(*files, panels);
  PatchTowerParts parts = VisionBinder(bind, plan).Bind();
  if (bind.error()) return std::unexpected(*bind.error());
  auto encoder = std::make_unique<Encoder>(files, bind, plan.encoder, EncoderHead());
  if (bind.error()) return std::unexpected(*bind.error());
  return std::make_unique<PatchTower>(std::move(parts), std::move(encoder), bind.parameters(), bind.bytes(),
                                      bind.resident_bytes());
}

std::unexpected<api::Error> UnknownTower(const ModelFiles& files, const std::string& name) {
  return api::Fail(
      api::ErrorCode::kUnsupported,
      fmt::format("{}: the vision tower of \"{}\" is not supported", files.path(), name.substr(0, 100)));
}

}  // namespace

void ReadVisionSizes(VisionConfig& config, VisionPlan& plan, const VisionSizeNames& names) {
  ConfigReader& read = config.vision;
  EncoderForm& form = plan.encoder;
  form.hidden = read.Small({names.hidden, "vision.embedding_length"}, 1, kMaxWidth);
  form.layers = read.Small({names.layers, "vision.block_count"}, 1, kMaxLayers);
  form.heads = read.Small({names.heads, "vision.attention.head_count"}, 1, kMaxHeads);
  std::optional<int64_t> wide;
  if (config.gguf()) wide = RowsOfTensor(config, "v.blk.0.ffn_up.weight", 1);
  if (names.ratio != nullptr && !config.gguf()) {
    wide = read.Integer({names.ratio, ""}, 1, 64, 4) * form.hidden;
  }
  form.feed_forward = read.Small({"intermediate_size", "vision.feed_forward_length"}, 1, kMaxWidth, wide);
  form.kv_heads = form.heads;
  form.head_dim = form.hidden / form.heads;
  plan.tower.patch = read.Small({"patch_size", "vision.patch_size"}, 1, 1024);
  if (form.hidden % form.heads != 0 || form.head_dim > kernels::kMaxHeadDim) {
    read.Fail(fmt::format("{} heads of a hidden size of {} are not supported", form.heads, form.hidden));
    form.head_dim = 1;
  }
}

float ReadVisionEps(VisionConfig& config, double fallback) {
  return static_cast<float>(config.vision.Positive(
      {"layer_norm_eps|rms_norm_eps", "vision.attention.layer_norm_epsilon"}, 1, fallback));
}

int64_t RowsOfTensor(VisionConfig& config, const std::string& tensor, int64_t fallback) {
  const weights::Tensor* found = config.gguf() ? config.vision.files().Find(tensor) : nullptr;
  return found == nullptr ? fallback : std::clamp<int64_t>(found->rows(), 1, kMaxWidth);
}

int32_t SideOfTable(VisionConfig& config, const std::string& tensor, int32_t fallback) {
  const weights::Tensor* found = config.gguf() ? config.vision.files().Find(tensor) : nullptr;
  if (found == nullptr) return fallback;
  return static_cast<int32_t>(std::sqrt(static_cast<double>(std::clamp<int64_t>(found->rows(), 1, 1 << 20))));
}

double ReadVisionTheta(VisionConfig& config, double fallback) {
  const double theta = config.vision.Positive(
      {"rope_parameters/rope_theta|rope_theta", "vision.rope.freq_base"}, 1e12, fallback);
  const std::string type = config.vision.Text({"rope_parameters/rope_type", ""}, "axial");
  if (type != "axial" && type != "default")
    config.vision.Fail("rope_parameters: only axial angles are supported");
  return theta;
}

void UseGridRope(VisionConfig& config, EncoderForm& form, double default_theta) {
  const double theta = ReadVisionTheta(config, default_theta);
  if (form.head_dim % 4 != 0) config.vision.Fail("heads are not a multiple of 4 wide");
  RopeSpec rope;
  const int32_t quarter = form.head_dim / 4;
  for (int32_t axis = 0; axis < 2; ++axis) {
    for (int32_t i = 0; i < quarter; ++i) {
      rope.frequencies.push_back(static_cast<float>(std::pow(theta, -static_cast<double>(i) / quarter)));
    }
  }
  form.rope_axes = 2;
  form.ropes.push_back(std::move(rope));
  form.rope_of.assign(static_cast<size_t>(form.layers), 0);
}

api::Result<std::unique_ptr<VisionTower>> LoadVisionTower(std::shared_ptr<const ModelFiles> model,
                                                          std::shared_ptr<const ModelFiles> projector) {
  if (projector == nullptr && !HoldsTower(*model)) return nullptr;
  ConfigReader text(*model);
  const auto text_hidden = text.Small({"hidden_size", "embedding_length"}, 1, kMaxWidth);
  if (text.error()) return std::unexpected(*text.error());
  if (projector != nullptr) {
    const std::string type = ProjectorType(*projector);
    for (const VisionFamily& family : kVisionFamilies) {
      if (ListHas(family.projector, type))
        return LoadPatchTower(std::move(projector), family, false, text_hidden);
    }
    return UnknownTower(*projector, type);
  }
  const std::string architecture = model->architecture();
  const bool gguf = model->format() == weights::Format::kGguf;
  for (const VisionFamily& family : kVisionFamilies) {
    if (ListHas(gguf ? family.blob : family.hugging_face, architecture)) {
      return LoadPatchTower(std::move(model), family, gguf, text_hidden);
    }
  }
  return UnknownTower(*model, architecture);
}

}  // namespace quire::runner::models
