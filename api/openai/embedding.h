// Embedding requests of all dialects: bodies of /api/embed, /api/embeddings, /v1/embeddings and others to one
// struct, vectors to reply bodies. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/request.h"
#include "api/openai/vector_text.h"

namespace quire::api {

enum class EmbedDialect : uint8_t {
  kOllama,        // /api/embed: "input", a text or several
  kOllamaLegacy,  // /api/embeddings: one "prompt", its vector not normalized
  kOpenAi,        // /v1/embeddings: "input" may also be token ids
  kLlamaServer,   // /embedding, /embeddings: the same, or "content"; "model" may be left out
  kTei,           // /embed of text-embeddings-inference: "inputs"; "model" may be left out
  kCohere,        // /v2/embed
  kCohereOld,     // /v1/embed: without "embedding_types" the reply has one list of vectors
};

struct EmbedRequest {
  EmbedDialect dialect = EmbedDialect::kOllama;
  std::string model;                // as sent; replies echo it. Empty only in kLlamaServer and kTei
  std::vector<EmbedPrompt> inputs;  // in the order of the reply; none: only loads the model
  Overflow overflow = Overflow::kTruncate;
  std::vector<VectorType> types = {VectorType::kFloat};  // of the reply, in this order
  bool by_type = false;                                  // the body named them
  std::optional<std::chrono::nanoseconds> keep_alive;    // < 0 = never expires
  Options options;
  std::vector<std::string> unknown_options;  // for the log
  std::string cache_salt;

  // The same for every input: here once, as there may be thousands of inputs.
  struct Shared {
    std::string query, instruction;  // of pairs; `query` is the text of an input
    std::string prompt_name;
  } shared = {};

  // All but the prompt; its model's parameters are `defaults`.
  Request Common(const Options& defaults) const;
  // The i-th input as a request.
  Request At(size_t i, const Options& defaults) const;
  // Its name in the body: "input", "input[2]", "prompt".
  std::string NameOf(size_t i) const;
  bool one_text = false;             // the body's input is no list
  std::string_view field = "input";  // of the texts
};

// Errors name the field. OpenAI's dialect refuses texts that are too long, the Ollama dialect cuts them
// unless "truncate" is false.
Result<EmbedRequest> ParseEmbed(EmbedDialect dialect, std::string_view body);

struct EmbedResult {
  std::vector<std::vector<float>> vectors;  // one per input; all numbers finite
  int64_t prompt_tokens = 0;                // of all inputs, as they were cut
  std::chrono::nanoseconds total{};         // since the request arrived
  std::chrono::nanoseconds load{};          // of it, waiting for the model to load
};

std::string EncodeEmbed(const EmbedRequest& request, const EmbedResult& result);

}  // namespace quire::api
