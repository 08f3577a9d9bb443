#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "runner/models/config_reader.h"
#include "runner/models/decoder_form.h"
#include "runner/models/families.h"
#include "runner/models/model.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {
namespace {

struct Family {
  Architecture architecture;
  ModelLoader* load;
};

// A family is one line here: its name, its names in the two formats, its loader.
constexpr std::array kFamilies = {
    Family{{"AFMoE (Trinity)", "afmoe", "afmoe"}, LoadAfmoe},
    Family{{"Apertus", "apertus", "apertus"}, LoadApertus},
    Family{{"Arctic", "", "arctic"}, LoadArctic},
    Family{{"Arcee", "arcee", "arcee"}, LoadArcee},
    Family{{"Baichuan, Baichuan 2", "", "baichuan"}, LoadBaichuan},
    Family{{"Bamba", "bamba", ""}, LoadBamba},
    Family{{"BitNet", "bitnet", "bitnet"}, LoadBitNet},
    Family{{"BLOOM", "bloom", "bloom"}, LoadBloom},
    Family{{"CodeShell", "", "codeshell"}, LoadCodeShell},
    Family{{"Cohere (Command R, R+)", "cohere", "command-r"}, LoadCohere},
    Family{{"Cohere 2", "cohere2", "cohere2"}, LoadCohere2},
    Family{{"Cohere 2 with experts", "cohere2_moe", "cohere2moe"}, LoadCohere2Moe},
    Family{{"CWM", "cwm", ""}, LoadCwm},
    Family{{"DBRX", "dbrx", "dbrx"}, LoadDbrx},
    Family{{"Deci, Llama Nemotron", "", "deci"}, LoadDeci},
    Family{{"dots.llm1", "dots1", "dots1"}, LoadDots1},
    Family{{"ERNIE 4.5", "ernie4_5", "ernie4_5"}, LoadErnie45},
    Family{{"ERNIE 4.5 with experts", "ernie4_5_moe", "ernie4_5-moe"}, LoadErnie45Moe},
    Family{{"EXAONE 3", "exaone", "exaone"}, LoadExaone},
    Family{{"EXAONE 4", "exaone4", "exaone4"}, LoadExaone4},
    Family{{"EXAONE 4 with experts", "exaone_moe", "exaone-moe"}, LoadExaoneMoe},
    Family{{"Falcon", "falcon", "falcon"}, LoadFalcon},
    Family{{"Falcon-H1", "falcon_h1", "falcon-h1"}, LoadFalconH1},
    Family{{"FlexOlmo", "flex_olmo", ""}, LoadFlexOlmo},
    Family{{"Gemma", "gemma", "gemma"}, LoadGemma},
    Family{{"Gemma 2", "gemma2", "gemma2"}, LoadGemma2},
    Family{{"VaultGemma", "vaultgemma", ""}, LoadGemma2},
    Family{{"Gemma 3", "gemma3|gemma3_text", "gemma3"}, LoadGemma3},
    Family{{"Gemma 3n", "gemma3n|gemma3n_text", "gemma3n"}, LoadGemma3n},
    Family{{"Gemma 4", "gemma4|gemma4_text|gemma4_unified|gemma4_unified_text", "gemma4"}, LoadGemma4},
    Family{{"GLM-4 of 2024", "glm", "chatglm"}, LoadGlm},
    Family{{"GLM-4 of 2025, dense", "glm4", "glm4"}, LoadGlm4},
    Family{{"GLM-4.5, GLM-4.6", "glm4_moe", "glm4moe"}, LoadGlm4Moe},
    Family{{"GPT-2", "gpt2", "gpt2"}, LoadGpt2},
    Family{{"GPT-BigCode (StarCoder)", "gpt_bigcode", "starcoder"}, LoadGptBigCode},
    Family{{"GPT-J", "gptj", ""}, LoadGptJ},
    Family{{"GPT-NeoX, Pythia", "gpt_neox", "gptneox"}, LoadGptNeoX},
    Family{{"gpt-oss", "gpt_oss", "gpt-oss"}, LoadGptOss},
    Family{{"DeepSeek (2024, 16B)", "deepseek", "deepseek", false, "llama.cpp"}, LoadDeepSeekV1},
    Family{{"DeepSeek V2, V3, R1, Kimi K2, Kimi-VL, GLM-4.7-Flash",
            "deepseek_v3|deepseek_v2|kimi_k2|kimi_vl|glm4_moe_lite", "deepseek2"},
           LoadDeepSeek},
    Family{{"DeepSeek V3.2", "deepseek_v32", "deepseek32"}, LoadDeepSeekV32},
    Family{{"GLM-5", "glm_moe_dsa", "glm-dsa"}, LoadGlmMoeDsa},
    Family{{"DeepSeek V4", "deepseek_v4", "deepseek4"}, LoadDeepSeekV4},
    Family{{"Granite, dense", "granite", "granite"}, LoadGranite},
    Family{{"Granite with windows", "granite_swa|granitemoe_swa", "granite_swa"}, LoadGraniteSwa},
    Family{{"Granite 3 with experts", "granitemoe|granitemoeshared", "granitemoe"}, LoadGraniteMoe},
    Family{{"Granite 4 hybrid", "granitemoehybrid", "granitehybrid"}, LoadGraniteHybrid},
    Family{{"Grok 1", "", "grok"}, LoadGrok},
    Family{{"GroveMoE", "", "grovemoe"}, LoadGroveMoe},
    Family{{"Helium", "helium", ""}, LoadHelium},
    Family{{"Hunyuan 3", "hy_v3", "hy_v3"}, LoadHyV3},
    Family{{"Hunyuan 4", "hy_v4", "hy_v4"}, LoadHyV4},
    Family{{"Hunyuan, dense", "hunyuan_v1_dense", "hunyuan-dense"}, LoadHunyuanDense},
    Family{{"Hunyuan with experts", "hunyuan_v1_moe", "hunyuan-moe"}, LoadHunyuanMoe},
    Family{{"Hunyuan-VL", "hunyuan_vl|hunyuan_vl_text", "hunyuan_vl"}, LoadHunyuanDense},
    Family{{"HyperCLOVA X", "hyperclovax", ""}, LoadHyperClovaX},
    Family{{"InternLM 2", "", "internlm2"}, LoadLlama},
    Family{{"Jais", "", "jais"}, LoadJais},
    Family{{"Jais 2", "jais2", "jais2"}, LoadJais2},
    Family{{"Jamba", "jamba", "jamba"}, LoadJamba},
    Family{{"Kimi Linear", "kimi_linear", "kimi-linear"}, LoadKimiLinear},
    Family{{"Laguna", "laguna", "laguna"}, LoadLaguna},
    Family{{"LFM2", "lfm2|lfm2_vl|lfm2-vl", "lfm2"}, LoadLfm2},
    Family{{"LFM2-MoE", "lfm2_moe", "lfm2moe"}, LoadLfm2},
    Family{{"Ling, Ling 2, Sarvam-MoE", "bailing_moe|bailing_moe_v2|sarvam_moe", "bailingmoe|bailingmoe2",
            false, "llama.cpp"},
           LoadBailingMoe},
    Family{{"Ling 3", "bailing_hybrid", "bailingmoe3"}, LoadBailingHybrid},
    Family{{"Llama", "llama|smolvlm|idefics3", "llama"}, LoadLlama},
    Family{{"Llama 4", "llama4|llama4_text", "llama4"}, LoadLlama4},
    Family{{"LongCat-Flash", "longcat_flash", ""}, LoadLongcatFlash},
    Family{{"Maincoder", "", "maincoder"}, LoadMaincoder},
    Family{{"Mamba, Falcon-Mamba", "mamba|falcon_mamba", "mamba"}, LoadMamba},
    Family{{"Mamba-2", "mamba2", "mamba2"}, LoadMamba2},
    Family{{"Mellum 2", "mellum", "mellum"}, LoadMellum},
    Family{{"MiMo-V2", "mimo_v2_flash|mimo_v2", "mimo2"}, LoadMimoV2},
    Family{{"MiniCPM", "", "minicpm"}, LoadMiniCpm},
    Family{{"MiniCPM 3", "minicpm3", "minicpm3"}, LoadMiniCpm3},
    Family{{"MiniMax-M2", "minimax_m2", "minimax-m2"}, LoadMiniMaxM2},
    Family{{"MiniMax-M3", "minimax_m3_vl|minimax_m3_vl_text", "minimax-m3"}, LoadMiniMaxM3},
    Family{{"MiniMax-Text-01, MiniMax-M1", "minimax|minimax_text_01|minimax_m1", "minimax-01"}, LoadMiniMax},
    Family{{"Ministral 3", "ministral3", "mistral3"}, LoadMinistral3},
    Family{{"Mistral", "mistral|ministral", "mistral"}, LoadMistral},
    Family{{"Mistral Small 3.1, Ministral 3 and Mistral 4 with vision, Pixtral", "mistral3|llava", ""},
           LoadMistral3},
    Family{{"Mistral 4", "mistral4", "mistral4"}, LoadMistral4},
    Family{{"Mixtral", "mixtral", "llama"}, LoadMixtral},  // LoadLlama has the GGUF files
    Family{{"MPT", "mpt", "mpt"}, LoadMpt},
    Family{{"Muse Glimmer", "muse_glimmer|muse_glimmer_text", "muse-glimmer"}, LoadMuseGlimmer},
    Family{{"Nanbeige", "", "nanbeige"}, LoadNanbeige},
    Family{{"nanochat", "nanochat", ""}, LoadNanoChat},
    Family{{"Nemotron, dense", "nemotron", "nemotron"}, LoadNemotron},
    Family{{"Nemotron-H, Nemotron Nano", "nemotron_h", "nemotron_h|nemotron_h_moe"}, LoadNemotronH},
    Family{{"OLMo", "olmo", "olmo"}, LoadOlmo},
    Family{{"OLMo 2, OLMo 3", "olmo2|olmo3", "olmo2"}, LoadOlmo2},
    Family{{"OLMoE", "olmoe", "olmoe"}, LoadOlmoe},
    Family{{"OLMo-Hybrid", "olmo_hybrid", ""}, LoadOlmoHybrid},
    Family{{"OpenELM", "", "openelm"}, LoadOpenElm},
    Family{{"Orion", "", "orion"}, LoadOrion},
    Family{{"Pangu Embedded", "", "pangu-embedded"}, LoadPanguEmbedded},
    Family{{"Phi-1, Phi-2", "phi", "phi2"}, LoadPhi},
    Family{{"Phi-3, Phi-4", "phi3", "phi3"}, LoadPhi3},
    Family{{"Phi-3.5-MoE", "phimoe", "phimoe"}, LoadPhiMoe},
    Family{{"PLaMo", "", "plamo"}, LoadPlamo},
    Family{{"PLaMo 2", "plamo2", "plamo2", false, "its formulas"}, LoadPlamo2},
    Family{{"PLaMo 3", "", "plamo3"}, LoadPlamo3},
    Family{{"PLM", "", "plm"}, LoadPlm},
    Family{{"Qwen", "", "qwen"}, LoadQwen},
    Family{{"Qwen2, Qwen2.5", "qwen2", "qwen2"}, LoadQwen2},
    Family{{"Qwen2-MoE", "qwen2_moe", "qwen2moe"}, LoadQwen2Moe},
    Family{{"Qwen2-VL, Qwen2.5-VL", "qwen2_vl|qwen2_vl_text|qwen2_5_vl|qwen2_5_vl_text", "qwen2vl|qwen25vl"},
           LoadQwen2Vl},
    Family{{"Qwen3", "qwen3", "qwen3"}, LoadQwen3},
    Family{{"Qwen3-MoE", "qwen3_moe", "qwen3moe"}, LoadQwen3Moe},
    Family{{"Qwen3-Next", "qwen3_next", "qwen3next"}, LoadQwen3Next},
    Family{{"Qwen3-VL", "qwen3_vl|qwen3_vl_text", "qwen3vl"}, LoadQwen3Vl},
    Family{{"Qwen3-VL with experts", "qwen3_vl_moe|qwen3_vl_moe_text", "qwen3vlmoe"}, LoadQwen3VlMoe},
    Family{{"Qwen3.5", "qwen3_5|qwen3_5_text", "qwen35"}, LoadQwen3Next},
    Family{{"Qwen3.5-MoE", "qwen3_5_moe|qwen3_5_moe_text", "qwen35moe"}, LoadQwen3Next},
    Family{{"Refact", "", "refact"}, LoadRefact},
    Family{{"Qwen3.8-Flash-Next (Qwen4-Exp)", "qwen4_exp|qwen4_exp_text", "qwen4exp"}, LoadQwen4Exp},
    Family{{"RWKV-7", "rwkv7|rwkv7_fla", "rwkv7", false, "llama.cpp"}, LoadRwkv7},
    Family{{"RWKV-7 made of other models (ARWKV)", "", "arwkv7"}, LoadRwkv7},
    Family{{"Seed-OSS", "seed_oss", "seed_oss"}, LoadSeedOss},
    Family{{"SmallThinker", "", "smallthinker"}, LoadSmallThinker},
    Family{{"SmolLM3", "smollm3", "smollm3"}, LoadSmolLm3},
    Family{{"Solar Open", "solar_open", ""}, LoadSolarOpen},
    Family{{"Spark 2.5", "", "spark2_5"}, LoadSpark},
    Family{{"StableLM", "stablelm", "stablelm"}, LoadStableLm},
    Family{{"StarCoder2", "starcoder2", "starcoder2"}, LoadStarCoder2},
    Family{{"Step 3.5", "", "step35"}, LoadStep35},
    Family{{"XVERSE", "", "xverse"}, LoadLlama},
    Family{{"Zamba2", "zamba2", ""}, LoadZamba2},
};

using LoadDraft = api::Result<std::unique_ptr<DraftModel>> (*)(std::shared_ptr<const weights::ModelFiles>,
                                                               const Model& target);
struct DraftFamily {
  Architecture architecture;
  LoadDraft load;
};
constexpr std::array kDraftFamilies = {
    DraftFamily{{"Gemma 4 assistant", "gemma4_assistant", "gemma4-assistant", true}, LoadGemma4Assistant},
};

// "a|b" apart.
std::vector<std::string_view> Split(std::string_view names) {
  std::vector<std::string_view> parts;
  while (!names.empty()) {
    const size_t bar = names.find('|');
    parts.push_back(names.substr(0, bar));
    names = bar == std::string_view::npos ? std::string_view() : names.substr(bar + 1);
  }
  return parts;
}

// The family that knows the files' architecture, or null and in `known` the names there are.
template <class Families>
auto FindFamily(const Families& families, const weights::ModelFiles& files,
                std::vector<std::string_view>* known) -> decltype(families.data()) {
  const bool gguf = files.format() == weights::Format::kGguf;
  const std::string architecture = files.architecture();
  for (const auto& family : families) {
    for (const auto name : Split(gguf ? family.architecture.gguf : family.architecture.hugging_face)) {
      if (name == architecture) return &family;
      if (std::ranges::find(*known, name) == known->end()) known->push_back(name);
    }
  }
  return nullptr;
}

std::unexpected<api::Error> Unsupported(const weights::ModelFiles& files, std::string_view among,
                                        const std::vector<std::string_view>& known) {
  const std::string architecture = files.architecture().substr(0, 100);  // it goes into a message
  if (const std::string_view reason = RefusalOf(architecture); !reason.empty()) {
    return api::Fail(
        api::ErrorCode::kBadModel,
        fmt::format("{}: the architecture \"{}\" is not supported: {}", files.path(), architecture, reason));
  }
  return api::Fail(api::ErrorCode::kBadModel,
                   fmt::format("{}: the architecture \"{}\" is not one of {}: {}", files.path(), architecture,
                               among, fmt::join(known, ", ")));
}

// Decoders that were trained on to embed, as gte-Qwen2, may see both ways: with the layers of their family,
// they say so by one key.
api::Result<void> CheckSeesBackwards(const weights::ModelFiles& files) {
  ConfigReader read(files);
  constexpr ConfigKey kCausal = {"is_causal", "attention.causal"};
  if (!read.Boolean(kCausal, true)) {
    read.Fail(fmt::format("{}: only true is supported for a decoder", read.Name(kCausal)));
  }
  return read.error() ? api::Result<void>(std::unexpected(*read.error())) : api::Result<void>();
}

}  // namespace

std::vector<Architecture> SupportedArchitectures() {
  std::vector<Architecture> architectures;
  architectures.reserve(kFamilies.size() + kDraftFamilies.size());
  for (const Family& family : kFamilies) architectures.push_back(family.architecture);
  for (const DraftFamily& family : kDraftFamilies) architectures.push_back(family.architecture);
  return architectures;
}

api::Result<std::unique_ptr<Model>> LoadModel(std::shared_ptr<const weights::ModelFiles> files,
                                              api::KvType kv_type) {
  std::vector<std::string_view> known, drafts;
  if (const Family* family = FindFamily(kFamilies, *files, &known)) {
    if (auto causal = CheckSeesBackwards(*files); !causal) return std::unexpected(causal.error());
    auto model = family->load(std::move(files));
    if (!model) return model;
    if (auto kept = (*model)->SetKvCacheType(kv_type); !kept) return std::unexpected(kept.error());
    return model;
  }
  if (FindFamily(kDraftFamilies, *files, &drafts) != nullptr) {
    return api::Fail(
        api::ErrorCode::kBadModel,
        fmt::format("{}: this is a draft model; it can only be used with its target model", files->path()));
  }
  return Unsupported(*files, "the supported architectures", known);
}

api::Result<std::unique_ptr<MtpLayer>> LoadMtpLayer(std::shared_ptr<const weights::ModelFiles> files,
                                                    const Model& target, api::KvType kv_type) {
  auto layer = LoadQwen3NextMtp(files, target, kv_type);
  if (!layer || *layer != nullptr) return layer;
  return LoadDeclaredMtp(std::move(files), target, kv_type);
}

bool IsDraftModel(const weights::ModelFiles& files) {
  std::vector<std::string_view> known;
  return FindFamily(kDraftFamilies, files, &known) != nullptr;
}

api::Result<std::unique_ptr<DraftModel>> LoadDraftModel(std::shared_ptr<const weights::ModelFiles> files,
                                                        const Model& target) {
  std::vector<std::string_view> known;
  if (const DraftFamily* family = FindFamily(kDraftFamilies, *files, &known)) {
    return family->load(std::move(files), target);
  }
  return Unsupported(*files, "the supported draft architectures", known);
}

}  // namespace quire::runner::models
