// Builds the token ids of a request's prompt: renders the template, tokenizes, truncates to the context.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "api/base/error.h"
#include "api/base/event.h"
#include "api/base/ids.h"
#include "api/base/request.h"
#include "runner/engine/prompt/fim_prompt.h"
#include "runner/engine/prompt/image_prompt.h"
#include "runner/models/rank_head.h"
#include "runner/output/format.h"

namespace quire::runner {
class PromptTemplate;
namespace tokenizer {
class Tokenizer;
}
namespace weights {
struct GenerationDefaults;
}
namespace constraint {
class Constraint;
class ConstraintCache;
}  // namespace constraint
}  // namespace quire::runner

namespace quire::runner::engine {

class SentenceSettings;

// How long an answer may think.
struct ThinkingBudget {
  int32_t tokens_max = 0;
  std::vector<api::TokenId> closing = {};  // ends thinking after that many tokens; empty: there is no bound
};

struct BuiltPrompt {
  std::vector<api::TokenId> tokens;  // at least one, fewer than num_ctx; to be embedded: at most num_ctx
  int32_t num_ctx = 0;               // of this request
  int32_t dropped = 0;               // prompt tokens left out to fit
  int32_t system_tokens = 0;         // of its beginning: system message and tools, which are never dropped
  std::vector<int32_t> boundaries = {};  // where a message ends and the next begins, ascending, in (0, size)
  // Those of them (or, without a turn-start token, offsets just behind) that end a message marked as restore
  // point.
  std::vector<int32_t> restore_points = {};
  std::unique_ptr<output::Parser> output = {};              // of the answer; null: all of it is text
  std::shared_ptr<constraint::Constraint> constraint = {};  // of the answer; null: it is free
  ThinkingBudget thinking_budget = {};
  std::chrono::nanoseconds build_time{};  // that building it took; for statistics
  std::vector<int32_t> types = {};        // of tokens, for encoders; empty: all 0
  std::vector<ImageSpan> images = {};     // ascending
  std::string rendered_text = {};         // what the template wrote, of a chat whose text is asked for
  // ApplyModelDefaults():
  std::string sampling = {};                    // PromptReady::sampling
  std::vector<api::TokenId> banned_first = {};  // as the first token of the answer
};

// What a model gives.
enum class ModelTask : uint8_t { kGenerate, kEmbed, kRank };

// The inputs for building a prompt. Owned elsewhere; immutable except for the constraints.
struct PromptContext {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  const PromptTemplate& prompt_template;
  std::optional<api::TokenId> turn_start_token;  // see LoadedModel
  std::optional<FimTokens> fim_tokens;
  int32_t context_length = 0;                          // the model's
  output::Format format = {};                          // of its answers
  constraint::ConstraintCache* constraints = nullptr;  // any thread; null: no formats
  int32_t context_max = 0;                // tokens of one sequence that the caches hold; 0 = not known
  ModelTask task = ModelTask::kGenerate;  // such models embed too
  const models::RankPrompt* rank_prompt = nullptr;                      // of a decoder that ranks
  const std::unordered_set<api::TokenId>* end_of_generation = nullptr;  // null: none
  const SentenceSettings* sentence = nullptr;             // null: the files say nothing of texts to embed
  const weights::GenerationDefaults* defaults = nullptr;  // of its answers; null: none
  ImageContext images = {};
  bool resumed = false;           // the answer began in another runner
  bool formats_may_wait = false;  // the caller waits until WorkStopped says that there is memory for one more
};

inline constexpr int32_t kNumCtxMin = 4;
// For a prompt that is only described: the limit that the daemon accepts per request.
inline constexpr size_t kDescribedBytesMax = size_t{16} << 20;
inline constexpr size_t kDescribedTokensMax = 4'000'000;
inline constexpr size_t kDescribedPiecesMax = 200'000;
inline constexpr size_t kDescribedPiecesPerDelta = 1024;

// Any thread. Errors: kInvalidArgument (the template refuses the messages, the
// prompt is empty, it or logit_bias holds an id the model does not have, the format is broken), kUnsupported
// (fill-in-the-middle, tools or thinking, and the model knows none; what of a format cannot be enforced),
// kContextLengthExceeded, kTooLarge.
api::Result<BuiltPrompt> BuildPrompt(const PromptContext& context, const api::Request& request);

// All events of a request that wants its prompt only: PromptReady, the text if asked for, and Finished, or
// Failed. Any thread.
std::vector<api::Event> DescribePrompt(const PromptContext& context, const api::Request& request);

}  // namespace quire::runner::engine
