// A generation request, free of any dialect: what the dialect parsers produce, the scheduler routes and the
// runner serves. Plain data; may be copied and moved between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/base/fair/party.h"
#include "api/base/ids.h"
#include "api/base/options.h"
#include "api/base/output_format.h"

namespace quire::api {

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments_json;  // a JSON object, key order as received
};

// An image in a message. Copies of a request share its file.
struct Image {
  size_t at = 0;                            // bytes of the message's text before it
  std::shared_ptr<const std::string> file;  // PNG, JPEG or WebP, as it came; never null in a Request
};

struct Message {
  std::string role;  // lower case: system | user | assistant | tool | whatever the template knows
  std::string content;
  std::string thinking = {};
  std::vector<ToolCall> tool_calls = {};
  std::string tool_name = {};
  std::string tool_call_id = {};
  bool restore_point = false;      // later requests return to the end of this message: keep its prefix cached
  std::vector<Image> images = {};  // ascending by `at`
};

// A function that the answer may call.
struct Tool {
  std::string name;
  std::string parameters_json = {};  // the schema of its arguments, an object; empty: none was given
  bool strict = false;               // calls match the schema
  // All of it as chat templates see it: an object in OpenAI's shape, members in the order they came in.
  std::string definition_json = {};
  bool restore_point = false;  // as Message::restore_point, of the system message that describes the tools
  bool callable = true;        // false: shown to the model, but not among the tools that may be called now
  std::string parameters_field = {};  // of the request, for messages: "tools[0].input_schema"
};

// How a rendered prompt ends.
enum class PromptEnd : uint8_t {
  kAuto,         // inside a last message of the assistant's, which the model continues; otherwise as kAnswer
  kAnswer,       // with the header of an answer
  kMessages,     // behind the last message
  kLastMessage,  // inside the last message, which is the assistant's
};

// Rendered by the model's chat template.
struct ChatPrompt {
  std::vector<Message> messages;
  std::vector<Tool> tools = {};
  std::string template_arguments_json = {};  // more variables of the template, an object; empty: none
  PromptEnd end = PromptEnd::kAuto;
};

// Tokenized without a template: `raw` of /api/generate, /v1/completions, /tokenize.
struct RawPrompt {
  std::string text;
  bool add_special = true;    // BOS, if the model uses one
  bool parse_special = true;  // "<|im_end|>" is that token; otherwise plain text
};

// Token ids as they are.
struct TokenPrompt {
  std::vector<TokenId> tokens;
};

// Texts and token ids in a row. Special tokens in a text are parsed; a text at the beginning gets BOS, if the
// model uses one.
struct MixedPrompt {
  struct Piece {
    std::string text;
    std::vector<TokenId> tokens = {};  // instead of `text` unless empty
  };
  std::vector<Piece> pieces;
};

// Context of a FimPrompt from another place: a file of the same project, or a part of one.
struct FimFile {
  std::string name;
  std::string text;
};

// The model fills in what is missing between two texts; only for models that learned to.
struct FimPrompt {
  std::string prefix;
  std::string suffix;
  std::vector<FimFile> files = {};  // the first ones are left out where they do not fit
};

// /api/generate: token ids of the earlier exchange (none without `context`), then the rendered messages.
// Where it does not fit it is cut by tokens: num_keep of them stay, then the newest.
struct ContinuedPrompt {
  std::vector<TokenId> context;
  std::vector<Message> messages;
};

// To be embedded, not answered: Finished carries the vector. A text gets the BOS and EOS that the
// tokenizer adds, ids are used unchanged. Truncation keeps the start.
struct EmbedPrompt {
  std::string text;
  std::vector<TokenId> tokens = {};  // instead of `text` unless empty
  int32_t dimensions = 0;            // the leading elements of the vector to return; 0 = all
  bool normalize = true;             // to length 1
  // The vector is one number, the model's score of the pair of `text`, a query, and `document`.
  bool rank = false;
  std::string document = {};
  std::string instruction =
      {};  // of a ranking decoder's question, in place of the model's own; empty: its own
  int32_t document_tokens_max = 0;  // the end of a longer `document` is left out; 0 = no bound
  bool keep_end = false;            // truncation keeps the end of a text instead
  // The prefix that the model's files define under this name stands before `text`; empty: none.
  std::string prompt_name = {};
  bool prompt_required = false;  // kUnsupported if the files do not define it, instead of no prefix
};

using Prompt =
    std::variant<ChatPrompt, RawPrompt, ContinuedPrompt, EmbedPrompt, TokenPrompt, FimPrompt, MixedPrompt>;

// What to do with a prompt that is longer than the context.
enum class Overflow : uint8_t {
  kTruncate,      // Ollama API: drop the oldest, cut the newest if need be, say so in the reply
  kDropMessages,  // drop the oldest messages, never a part of one
  kRefuse,        // kContextLengthExceeded with both numbers
};

// Whose request it is. Requests that differ in tenant or salt never share a cached prefix; parties share the
// machine by weight.
struct Client {
  // Who gets a share of queues, places and computation: the holder of a key, or an address. With a credential
  // that nobody checks a client could be as many parties as it likes.
  fair::PartyId party = {};
  bool has_key = false;  // a key was checked: the party is one, where an address may be several people
  std::string tenant =
      {};  // who presented which credential, checked or not, as an opaque text; empty = nobody said
  std::string cache_salt = {};  // of the request's own choosing
  std::string exchange = {};    // the HTTP exchange that it came with; all its choices have the same

  // Who shares the party's places in a batch: its exchanges, where it may be several people; else nobody.
  std::string Member() const { return has_key ? std::string() : exchange; }
  // What one of them computed is used for requests of the same key only.
  std::string IsolationKey() const { return std::to_string(tenant.size()) + ':' + tenant + cache_salt; }
};

// The thinking setting of a request; levels are for models that support them and mean "on" to others.
enum class Think : uint8_t { kUnset, kOff, kOn, kLow, kMedium, kHigh, kMax };

// kRequired: the answer is a call, of Request::forced_tool if that is not empty.
enum class ToolChoice : uint8_t { kAuto, kRequired };

struct Request {
  Prompt prompt;
  Client client = {};
  GenerationParams params;
  // The options in `params` that the request or the model's PARAMETERs specify. The others are defaults of
  // the API, which sampling that the model's files recommend replaces.
  OptionBits specified = 0;
  Overflow overflow = Overflow::kTruncate;
  bool shift = true;                 // at the end of the context drop half of the unkept tokens and go on
  bool logprobs = false;             // report the log-probability of every generated token
  int32_t top_logprobs = 0;          // [0, kTopCandidatesMax] alternatives per token
  Think think = Think::kUnset;       // unset: a model that can think does
  bool think_optional = false;       // a model that cannot think answers without, instead of kUnsupported
  int32_t thinking_tokens_max = -1;  // thinking is closed after this many tokens; -1 = no bound
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string forced_tool = {};
  bool single_tool_call = false;            // the answer ends with its first call
  std::optional<OutputFormat> format = {};  // what the answer is, behind the thinking of a model that thinks
  std::string model_name = {};              // as the client wrote it, for messages
  // A Go template in place of the model's; of a ContinuedPrompt or a FimPrompt. Empty = the model's.
  std::string go_template = {};
  bool return_context = false;  // Finished carries the token ids of prompt and answer
  // Only render and tokenize: PromptReady and Finished tell the prompt's length, nothing is computed, and the
  // prompt may be longer than any context.
  bool prompt_only = false;
  // With prompt_only: a TextDelta tells the prompt as text, and with `logprobs` its tokens one by one.
  bool return_prompt_text = false;
  // Deltas before the answer's tell the prompt's tokens, and `logprobs` of the answer end with the token that
  // ended it.
  bool return_prompt_tokens = false;
  // They also tell the tokens' log-probabilities, each with this number of alternatives, at most 20; -1: they
  // do not.
  int32_t prompt_logprobs = -1;
  // Above 0: the answer ends behind a line break once it has taken this many milliseconds since its first
  // token.
  int32_t predict_ms_max = 0;
  // Above 0: the answer ends before its first line, from the second on, that begins with fewer blanks and
  // tabs.
  int32_t indent_min = 0;
  bool restore_point = false;    // as Message::restore_point, of the whole prompt
  bool delta_per_token = false;  // every token is a TextDelta of its own, even one that adds no text yet
  bool report_progress = false;  // a PrefillProgress after every step that leaves some of the prompt
  // When it came, in seconds since the epoch: the time that its templates show, whenever and however often
  // they are rendered. 0: not said yet, the daemon does.
  int64_t now_s = 0;
};

}  // namespace quire::api
