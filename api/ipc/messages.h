// Messages between quired and a quire-runner over an inherited Unix socketpair, and their frames.
//
// A frame is a 16-byte little-endian header {magic u32 'QIPC', version u16, type u16, length u32, reserved
// u32 = 0} followed by `length` bytes of MessagePack. Neither side trusts the other: every length is bounded
// by its type before memory is taken, every field is checked, and a frame that does not parse ends the link
// (daemon: the runner is replaced; runner: it exits).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/base/error.h"
#include "api/base/event.h"
#include "api/base/ids.h"
#include "api/base/kv_type.h"
#include "api/base/request.h"

namespace quire::api::ipc {

inline constexpr uint16_t kVersion = 19;
inline constexpr size_t kHeaderBytes = 16;
// To a runner: a 100k-turn chat fits; a hostile length does not. To the daemon less, by its type: BoundsOf().
inline constexpr size_t kFrameBytesMax = size_t{256} << 20;
inline constexpr size_t kEventFrameBytesMax = size_t{33}
                                              << 20;  // a RequestEvent: more than a client's queue holds

// ---- daemon -> runner ----

// A runner opens no file of a model: it inherits descriptors, numbered from here on without a gap.
inline constexpr int32_t kFirstModelFd = 5;
inline constexpr size_t kModelFilesMax = 4096;  // of one model
inline constexpr int32_t kLastModelFd = kFirstModelFd + 2 * static_cast<int32_t>(kModelFilesMax) - 1;

struct ModelFile {
  // In the model's directory: the Hugging Face directory ("config.json"), or the one that a GGUF file lies in
  // (its other splits). Empty = the GGUF file itself.
  std::string name;
  int32_t fd = -1;
};

// How a runner loads and serves a model. The daemon's options, and the engine's, have the same names.
struct RunnerSettings {
  int32_t threads = 0;      // compute threads; 0 = physical cores this process may use
  int64_t cache_bytes = 0;  // of all caches together; 0 = auto
  // For the weights of a model: what is beyond is read from its files by every product. 0 = auto: all
  // weights, or what memory holds.
  int64_t weights_budget = 0;
  int64_t memory_bytes = 0;  // that all models together may have; 0 = no limit but the machine's
  bool prefix_cache = true;
  bool model_sampling = true;         // sampling that the model's files recommend is the default
  std::string quantize_on_load = {};  // type for floating-point weights: "Q8_0", ...; empty = unchanged
  KvType kv_cache_type = kDefaultKvType;
  KvType state_cache_type = KvType::kF32;  // of recurrent states in the prefix cache; not kF16
};
// What a model's manifest says of its prompts, beside a template.
struct PromptNames {
  std::string renderer = {}, parser = {};  // of Ollama's built-in formats, or empty
};
struct LoadModel {
  std::string path;                   // GGUF file or Hugging Face directory; for messages only
  std::vector<ModelFile> files = {};  // what is there of it
  RunnerSettings settings = {};
  std::string go_template = {};  // goes before the files' own chat template; empty = none
  PromptNames names = {};
  std::string draft_path = {};  // as `path`, of a draft model; empty = none
  std::vector<ModelFile> draft_files = {};
  std::string projector_path = {};  // as `path`, of the file with its vision tower (mmproj); empty = none
  std::vector<ModelFile> projector_files = {};
  // The longest context of the requests that go on in this runner and began in another one: its caches hold a
  // sequence of that many tokens, or it is not loaded. 0 = there are none.
  int32_t context_min = 0;
};
// Answers MemoryEstimate: continue loading, with this size of the caches.
struct LoadApproved {
  int64_t cache_bytes = 0;
};
struct InspectModel {  // answered by Inspected; needs no loaded model
  std::string path;    // as in LoadModel
  std::vector<ModelFile> files = {};
  bool verbose = false;          // large arrays too
  std::string go_template = {};  // the one that goes before the file's own chat template; empty = none
  PromptNames names = {};        // as in LoadModel
  // All checks of LoadModel, with the draft model: what is wrong is in Inspected::error. Reads no weights.
  bool check_load = false;
  std::string draft_path = {};  // as in LoadModel
  std::vector<ModelFile> draft_files = {};
  std::string projector_path = {};  // as in LoadModel
  std::vector<ModelFile> projector_files = {};
  RunnerSettings settings = {};  // as in LoadModel
  int32_t num_ctx = 0;           // default context of requests, tokens; 0 = what fits
};
struct ConvertModel {  // into one file; answered by LoadProgress, any number of times, and Converted; needs
                       // no loaded model
  std::string from;    // as LoadModel::path; of several splits the first
  std::vector<ModelFile> files = {};  // of `from`
  std::string to = {};                // a GGUF file that does not exist yet
  std::string quantization = {};      // "Q8_0", ...; of GGUF only; empty = as it is
  int32_t threads = 0;                // 0 = physical cores this process may use
};
// A runner stops stepping a sequence whose client has not taken TextDeltas of as much credit (a slow reader).
inline constexpr int32_t kInitialCredit = 256;
// What a delta takes of it: candidates are encoded and read as so much text.
inline int32_t CreditOf(const api::TextDelta& delta) {
  size_t candidates = 0;
  for (const auto* tokens : {&delta.logprobs, &delta.prompt}) {
    for (const api::TokenLogprob& token : *tokens) candidates += token.top.size();
  }
  return static_cast<int32_t>(1 + candidates / 32);
}

// What a request has had of the runners before this one, once a runner has started it. Its usage is of all of
// them.
struct Spent {
  int32_t cached_tokens = 0;  // as PromptReady and Usage, of the first runner
  int64_t queue_ns = 0;
  int64_t prompt_ns = 0;  // of all runners so far
  int64_t output_ns = 0;
};

// Where a request whose runner died continues. The answer is the one it would have been: the same request
// with the same seed gives the same tokens, and the same tokens the same deltas.
struct Resume {
  // Sampled so far, the last one left out: it is sampled again, as what follows from it (the end) may not
  // have arrived.
  std::vector<TokenId> tokens = {};
  int64_t deltas = 0;                     // TextDeltas that arrived; they are not sent again
  int32_t credit = kInitialCredit;        // less those that the client has not taken yet
  std::optional<ResumeState> state = {};  // behind `tokens`
  // TextDelta::state_at_shift: tokens from there on are sampled again.
  std::optional<ResumeState> state_at_shift = {};
  // Tokens of its context: no more than the caches of its first runner held, whatever those of this one hold.
  // 0: what they hold.
  int32_t context = 0;
  std::optional<Spent> spent = {};  // nothing: no runner has started it
};
// An answer without num_predict ends at this many contexts' worth of tokens, so that a model that never stops
// does; every answer ends at kAnswerTokensMax, for whose ids the daemon has room.
inline constexpr int64_t kUnlimitedContexts = 10;
inline constexpr int32_t kAnswerTokensMax = 16'000'000;
struct Submit {
  RequestId id;
  Request request;
  Resume resume = {};
};
// A Submit whose parts are elsewhere.
struct SubmitView {
  RequestId id;
  const Request& request;
  const Resume& resume;
};
struct Credit {  // the client took TextDeltas of `deltas` credit; a request starts with kInitialCredit
  RequestId id;
  int32_t deltas = 0;
};
struct Cancel {
  RequestId id;
};
struct Shutdown {};
// The engine's sequences and its last step; answered by EngineInspected. Sent only while somebody looks.
struct InspectEngine {
  uint64_t id = 0;  // of the answer
};
// The prefixes that the caches hold; answered by CacheInspected. Sent only while somebody looks.
struct InspectCache {
  uint64_t id = 0;
  std::string isolation = {};  // Client::IsolationKey(): its prefixes, with text
  bool others = false;         // prefixes of other keys too, without text; otherwise nothing of them
  uint64_t known_version = 0;  // of the caller's last answer; 0: none
  int32_t nodes_max = 0;       // of the answer
};
inline constexpr int32_t kInspectedNodesMax = 1024;
inline constexpr int32_t kInspectedSequencesMax = 4096;

// In the order of their types on the wire, as ToDaemon is.
using ToRunner = std::variant<LoadModel, InspectModel, Submit, Credit, Cancel, Shutdown, ConvertModel,
                              LoadApproved, InspectEngine, InspectCache>;

// ---- runner -> daemon ----

struct Hello {  // first frame; the daemon refuses another version
  int32_t version = kVersion;
  int32_t pid = 0;
};
struct LoadProgress {
  float fraction = 0;  // [0, 1]
  std::string stage;   // "mapping weights", "building tokenizer", ...
};

// Memory that the model will take once it is loaded, sent before any weight is read. The runner then waits
// for LoadApproved.
struct MemoryEstimate {
  int64_t weight_bytes = 0;     // held, or read in place by products; the draft model's too
  int64_t scratch_bytes = 0;    // process, tokenizer, activations, logits
  int64_t cache_bytes = 0;      // preferred size of the caches
  int64_t cache_min_bytes = 0;  // smallest size that can serve a request; > 0, at most cache_bytes
  int64_t streamed_bytes = 0;   // of weights that stay in their files, beside weight_bytes
};

// The daemon's description of a loaded model.
struct ModelInfo {
  std::string architecture;    // "lfm2"
  int32_t context_length = 0;  // trained, tokens
  int32_t num_ctx = 0;         // effective default, tokens
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
  int64_t cache_bytes = 0;  // capacity of the caches
  bool supports_fim = false;
  std::string draft_architecture = {};  // of its draft model; empty = none
};
struct Loaded {
  ModelInfo info;
  int64_t load_ns = 0;
};
struct LoadFailed {
  Error error;
};
struct Inspected {              // answer to InspectModel
  std::string model_info_json;  // GGUF key/values as /api/show prints them, or empty with `error`
  std::string tensors_json;     // [{name,type,shape}]
  std::string chat_template;    // in use; empty: there is none, and no known format fits
  std::string quantization;     // "F16", "Q8_0", "BF16"
  int64_t parameters = 0;
  std::optional<Error> error;
  std::vector<std::string> capabilities = {};  // "completion", "tools", "thinking", "insert", "vision"
  std::string projector_info_json = {};        // as model_info_json, of projector_path; empty = none
  std::string template_error = {};             // what is wrong with InspectModel::go_template
  std::vector<std::string> repairs = {};       // what was read in another spelling than the file's
  // Sampling that the files recommend, a JSON object as of Modelfile PARAMETERs, and where it is; empty:
  // none, or it is not to be used.
  std::string sampling_json = {}, sampling_source = {};
  // The tokenizer's special tokens by their names in tokenizer_config.json ("bos_token"), and which it puts
  // around a text: a JSON object. Empty: of a model that does not generate text, or whose tokenizer cannot be
  // read.
  std::string tokenizer_json = {};
  // Only for a model that can be loaded: what loading takes here, and the context that requests get by
  // default.
  std::optional<MemoryEstimate> memory = {};
  int32_t context_length = 0;  // trained, tokens; 0 = not known
  int32_t num_ctx = 0;         // tokens; 0 = not known
};
struct Converted {  // answer to ConvertModel
  std::optional<Error> error;
};
struct RequestEvent {
  RequestId id;
  Event event;
};
struct Heartbeat {  // sent every second from the start: liveness and statistics
  uint64_t progress =
      0;  // grows at least once in two seconds unless the engine is stuck; 0 before the model is loaded
  uint64_t steps = 0;
  int32_t running = 0;
  int32_t waiting = 0;
  int64_t cache_bytes_used = 0;
  int64_t prefix_snapshots = 0;
  int64_t prefix_bytes = 0;  // of them; also in cache_bytes_used
  uint64_t prefix_evictions = 0;
};

// Why a sequence computes nothing now.
enum class WaitReason : uint8_t {
  kNone,
  kPlace,   // the batch or the memory of the caches is full
  kPrefix,  // another request computes the same prefix: its result is awaited
  kReader,  // its client takes nothing
};
struct InspectedSequence {
  RequestId id{};
  WaitReason wait = WaitReason::kNone;
  bool preempted = false;       // another took its place, or its memory
  int32_t prompt_tokens = 0;    // includes cached
  int32_t computed_tokens = 0;  // of prompt and answer, those in the caches
  int32_t output_tokens = 0;
  int64_t prefill_ns = 0;    // since its prefill began; 0: it has not, or it is over
  int64_t virtual_time = 0;  // of its tenant: tokens divided by the weight
};
struct EngineInspected {  // answer to InspectEngine
  uint64_t id = 0;
  std::vector<InspectedSequence> sequences = {};  // in the order of admission, then those that wait
  int32_t building = 0;                           // requests whose prompts are being built
  // The last step.
  uint64_t steps = 0;  // its number
  int32_t decoding = 0;
  int32_t prefilling = 0;
  int32_t prefill_tokens = 0;
  int32_t draft_tokens = 0;
  int64_t step_ns = 0;
};

// A node of a prefix tree: the tokens [from, to) behind its parent's.
struct InspectedNode {
  uint64_t id = 0;      // while it lives; the lower half of a split keeps it
  uint64_t parent = 0;  // 0: at the root
  int32_t tree = 0;     // 0: of the caller's isolation key; others are numbered from 1
  int64_t from = 0;
  int64_t to = 0;
  // What it counts, a shared page in each of its nodes.
  int64_t kv_bytes = 0;
  int64_t window_bytes = 0;
  int64_t state_bytes = 0;
  int64_t shared_bytes = 0;      // of these: in other nodes too
  bool restore_point = false;    // every layer can be restored at `to`
  bool marked = false;           // by a client
  int32_t in_use = 0;            // running sequences that stand on it
  int32_t evicted_children = 0;  // of late
  uint64_t hits = 0;             // requests that were restored from it
  int64_t age_ms = 0;
  int64_t idle_ms = 0;     // since its last use
  std::string begin = {};  // text of its first tokens, of the caller's isolation key only
  std::string end = {};    // and of its last ones, where `begin` is not all
};
struct CacheInspected {                         // answer to InspectCache
  static constexpr size_t kTextBytesMax = 128;  // of InspectedNode::begin and end

  uint64_t id = 0;
  uint64_t version = 0;                   // changes with the prefixes that are shown
  bool unchanged = false;                 // it is the version that the caller knows: nothing else is set
  std::vector<InspectedNode> nodes = {};  // parents before children
  int64_t nodes_left_out = 0;             // beyond nodes_max
  int64_t budget_bytes = 0;
  int64_t bytes = 0;       // with others: of all nodes, each page once; else of the caller's, as each counts
  int64_t other_keys = 0;  // isolation keys beside the caller's; with others only
  int64_t other_nodes = 0;
};

using ToDaemon = std::variant<Hello, LoadProgress, Loaded, LoadFailed, Inspected, RequestEvent, Heartbeat,
                              Converted, MemoryEstimate, EngineInspected, CacheInspected>;

// ---- codec; pure functions, any thread ----

// Header and payload; empty when the payload would be larger than kFrameBytesMax. A request parsed by this
// folder never is. To the daemon, an event, a description or an error beyond its bounds gives way to an error
// that says so.
std::string Encode(const ToRunner& message);
std::string Encode(const SubmitView& submit);  // as of a ToRunner, without a copy of the request
// Whether a runner would take it. kInvalidArgument names the field, kTooLarge: too many values.
Result<void> Check(const SubmitView& submit);
std::string Encode(const ToDaemon& message);
// Appends what Encode() gives; allocates nothing where `frames` has room.
void AppendFrame(const ToDaemon& message, std::string& frames);

enum class Receiver : uint8_t { kDaemon, kRunner };

// Cuts a byte stream into frames. Not thread-safe; one per direction of a link.
class FrameReader {
 public:
  struct Frame {
    uint16_t type = 0;
    std::string payload;
  };
  explicit FrameReader(Receiver receiver) : receiver_(receiver) {}
  void Append(std::string_view bytes);
  // The next whole frame, nothing yet, or the error that ends the link (bad magic, version, reserved bits,
  // type or length), which comes with the header: the payload of such a frame is not collected.
  Result<std::optional<Frame>> Next();

 private:
  const Receiver receiver_;
  std::string buffer_;
  size_t begin_ = 0;
};

Result<ToRunner> DecodeToRunner(const FrameReader::Frame& frame);
Result<ToDaemon> DecodeToDaemon(const FrameReader::Frame& frame);

}  // namespace quire::api::ipc
