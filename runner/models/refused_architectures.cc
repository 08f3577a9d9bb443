// Architectures that are known by name and not loaded.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "runner/models/model.h"

namespace quire::runner::models {
namespace {

constexpr std::array kRefused = {
    RefusedArchitecture{"a diffusion model", "dream|llada|llada-moe|llada_moe|rnd1|diffusion_gemma"},
    RefusedArchitecture{"a speech or audio model", "wavtokenizer-dec|qwen3tts|pockettts|whisper|bark"},
    RefusedArchitecture{"an encoder-decoder", "t5|t5encoder|mt5|bart|t5gemma"},
    RefusedArchitecture{"the draft head of another model", "eagle3|dflash"},
    RefusedArchitecture{"a vision tower without a text model", "clip"},
    RefusedArchitecture{"a model of images, whose text side is not loaded alone",
                        "chameleon|cogvlm|deepseek2-ocr|paddleocr|glm5-next"},
    RefusedArchitecture{"not implemented",
                        "clef|dots3note|gemma-embedding2|graniteswitch|hrm_text|k2-horizon|kimi-k3|"
                        "maion-coder|maple|rwkv6|rwkv6qwen2|talkie|vllm-decision2"},
};

}  // namespace

std::vector<RefusedArchitecture> RefusedArchitectures() { return {kRefused.begin(), kRefused.end()}; }

std::string_view RefusalOf(std::string_view architecture) {
  const std::string name = "|" + std::string(architecture) + "|";
  const auto found = std::ranges::find_if(kRefused, [&](const RefusedArchitecture& refused) {
    return ("|" + std::string(refused.names) + "|").find(name) != std::string::npos;
  });
  return found == kRefused.end() ? std::string_view() : found->reason;
}

}  // namespace quire::runner::models
