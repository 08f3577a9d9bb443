// What every message of the runner link consists of: name, member and bounds of each field. An unpacked value
// outside its bounds ends the link. Enums have their largest value as bound, numbers the smallest and the
// largest one, lists the number of elements, texts the number of bytes. A float is never NaN, in a list
// always finite.
#pragma once

#include <concepts>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "api/base/limits.h"
#include "api/ipc/messages.h"
#include "api/ipc/packer.h"

namespace quire::api::ipc {

// const T to pack, T to unpack.
template <class M, class T>
concept Is = std::same_as<std::remove_const_t<M>, T>;

inline constexpr int32_t kThreadsMax = 4096;
inline constexpr int32_t kWeightMax = 1'000'000;
// What a runner may say at most: sums over choices, models or the two times of a request do not overflow.
inline constexpr int32_t kSaidTokensMax = (1 << 24) - 1;
inline constexpr int64_t kSaidTimeMax = int64_t{1} << 54;   // ns: 208 days
inline constexpr int64_t kSaidBytesMax = int64_t{1} << 50;  // and counts
static_assert(kAnswerTokensMax < kSaidTokensMax && kSaidTokensMax <= INT32_MAX / kChoicesMax);
inline constexpr size_t kMissBytesMax = 64, kSamplingBytesMax = 4096, kDraftPositionsMax = 4096;

template <Is<Error> M, class V>
void VisitFields(M& m, V& visit) {
  visit("code", m.code, ErrorCode::kUnavailable);
  visit("message", m.message);
  visit("field", m.field);
  visit("tokens", m.tokens, 0);
  visit("tokens_max", m.tokens_max, 0);
}

// ---- requests ----

template <Is<ToolCall> M, class V>
void VisitFields(M& m, V& visit) {
  visit("id", m.id);
  visit("name", m.name);
  visit("arguments", m.arguments_json);
}
template <Is<Image> M, class V>
void VisitFields(M& m, V& visit) {
  visit("at", m.at);
  if constexpr (std::is_const_v<M>) {
    visit("file", *m.file, Binary());
  } else {
    auto file = std::make_shared<std::string>();
    visit("file", *file, Binary());
    m.file = std::move(file);
  }
}
template <Is<Message> M, class V>
void VisitFields(M& m, V& visit) {
  visit("role", m.role);
  visit("content", m.content);
  visit.IfAny("thinking", m.thinking);
  visit.IfAny("tool_name", m.tool_name);
  visit.IfAny("tool_call_id", m.tool_call_id);
  visit.IfAny("tool_calls", m.tool_calls);
  visit("restore_point", m.restore_point);
  visit.IfAny("images", m.images);
}
template <Is<Tool> M, class V>
void VisitFields(M& m, V& visit) {
  visit("name", m.name);
  visit("parameters", m.parameters_json);
  visit("parameters_field", m.parameters_field);
  visit("strict", m.strict);
  visit("callable", m.callable);
  visit("definition", m.definition_json);
  visit("restore_point", m.restore_point);
}
template <Is<ChatPrompt> M, class V>
void VisitFields(M& m, V& visit) {
  visit("messages", m.messages);
  visit("tools", m.tools);
  visit.IfAny("template_arguments", m.template_arguments_json);
  visit("end", m.end, PromptEnd::kLastMessage);
}
template <Is<RawPrompt> M, class V>
void VisitFields(M& m, V& visit) {
  visit("text", m.text);
  visit("add_special", m.add_special);
  visit("parse_special", m.parse_special);
}
template <Is<ContinuedPrompt> M, class V>
void VisitFields(M& m, V& visit) {
  visit("context", m.context);
  visit("messages", m.messages);
}
template <Is<EmbedPrompt> M, class V>
void VisitFields(M& m, V& visit) {
  visit("text", m.text);
  visit("tokens", m.tokens);
  visit("dimensions", m.dimensions, 0);
  visit("normalize", m.normalize);
  visit("rank", m.rank);
  visit("document", m.document);
  visit("instruction", m.instruction);
  visit("document_tokens_max", m.document_tokens_max, 0);
  visit("keep_end", m.keep_end);
  visit("prompt_name", m.prompt_name);
  visit("prompt_required", m.prompt_required);
}
template <Is<TokenPrompt> M, class V>
void VisitFields(M& m, V& visit) {
  visit("tokens", m.tokens);
}
template <Is<FimFile> M, class V>
void VisitFields(M& m, V& visit) {
  visit("name", m.name);
  visit("text", m.text);
}
template <Is<FimPrompt> M, class V>
void VisitFields(M& m, V& visit) {
  visit("prefix", m.prefix);
  visit("suffix", m.suffix);
  visit.IfAny("files", m.files);
}
template <Is<MixedPrompt::Piece> M, class V>
void VisitFields(M& m, V& visit) {
  visit("text", m.text);
  visit("tokens", m.tokens);
}
template <Is<MixedPrompt> M, class V>
void VisitFields(M& m, V& visit) {
  visit("pieces", m.pieces);
}
template <Is<Client> M, class V>
void VisitFields(M& m, V& visit) {
  // A number of this process: the other one makes its own of the name.
  std::string party = m.party.name();
  int32_t weight = m.party.weight();
  visit.IfAny("party", party);
  visit("weight", weight, 1, kWeightMax);
  if constexpr (!std::is_const_v<M>) m.party = fair::PartyNamed(party, weight);
  visit("has_key", m.has_key);
  visit("tenant", m.tenant);
  visit("cache_salt", m.cache_salt);
  visit("exchange", m.exchange);
}
template <Is<LogitBias> M, class V>
void VisitFields(M& m, V& visit) {
  visit("token", m.token, 0);
  visit("bias", m.bias, -kLogitBiasMax, kLogitBiasMax);
}
template <Is<GenerationParams> M, class V>
void VisitFields(M& m, V& visit) {
  VisitOptions(
      [&visit]<class T>(const OptionRow& row, T& option) {
        if constexpr (std::is_arithmetic_v<T> && !Is<T, bool>) {
          visit(row.name, option, row.Min<T>(), row.Max<T>());
        } else {
          visit(row.name, option);
        }
      },
      m);
}
template <Is<OutputFormat> M, class V>
void VisitFields(M& m, V& visit) {
  visit("kind", m.kind, OutputFormat::Kind::kGrammar);
  visit("text", m.text);
  visit("field", m.field);
}
template <Is<Request> M, class V>
void VisitFields(M& m, V& visit) {
  visit("prompt", m.prompt);
  visit("client", m.client);
  visit("params", m.params);
  visit("specified", m.specified);
  visit("overflow", m.overflow, Overflow::kRefuse);
  visit("shift", m.shift);
  visit("logprobs", m.logprobs);
  visit("top_logprobs", m.top_logprobs, 0, kTopCandidatesMax);
  visit("think", m.think, Think::kMax);
  visit("think_optional", m.think_optional);
  visit("thinking_tokens_max", m.thinking_tokens_max, -1);
  visit("tool_choice", m.tool_choice, ToolChoice::kRequired);
  visit("forced_tool", m.forced_tool);
  visit("single_tool_call", m.single_tool_call);
  visit.IfAny("format", m.format);
  visit("model_name", m.model_name);
  visit("go_template", m.go_template);
  visit("return_context", m.return_context);
  visit("prompt_only", m.prompt_only);
  visit("return_prompt_text", m.return_prompt_text);
  visit("return_prompt_tokens", m.return_prompt_tokens);
  visit("prompt_logprobs", m.prompt_logprobs, -1, kTopLogprobsMax);
  visit("predict_ms_max", m.predict_ms_max, 0);
  visit("indent_min", m.indent_min, 0);
  visit("restore_point", m.restore_point);
  visit("delta_per_token", m.delta_per_token);
  visit("report_progress", m.report_progress);
  visit("now_s", m.now_s);
}

// ---- daemon -> runner; those about models are in model_fields.h ----

template <Is<ResumeState> M, class V>
void VisitFields(M& m, V& visit) {
  visit.IfAny("sampler", m.sampler);
  visit("mask_steps", m.mask_steps);
}
// ns: the times of the next runner are added.
inline constexpr int64_t kSpentMax = int64_t{1} << 53;
template <Is<Spent> M, class V>
void VisitFields(M& m, V& visit) {
  visit("cached_tokens", m.cached_tokens, 0);
  visit("queue_ns", m.queue_ns, 0, kSpentMax);
  visit("prompt_ns", m.prompt_ns, 0, kSpentMax);
  visit("output_ns", m.output_ns, 0, kSpentMax);
}
template <Is<Resume> M, class V>
void VisitFields(M& m, V& visit) {
  visit("tokens", m.tokens);
  visit("deltas", m.deltas, 0);
  visit("credit", m.credit, 0, kInitialCredit);
  visit.IfAny("state", m.state);
  visit.IfAny("state_at_shift", m.state_at_shift);
  visit("context", m.context, 0);
  visit.IfAny("spent", m.spent);
}
template <class M, class V>
requires Is<M, Submit> || Is<M, SubmitView>
void VisitFields(M& m, V& visit) {
  visit("id", m.id);
  visit("request", m.request);
  visit("resume", m.resume);
}
template <Is<Credit> M, class V>
void VisitFields(M& m, V& visit) {
  visit("id", m.id);
  visit("deltas", m.deltas, 0);
}
template <class M, class V>
requires Is<M, Cancel> || Is<M, InspectEngine>
void VisitFields(M& m, V& visit) { visit("id", m.id); }
template <Is<Shutdown> M, class V>
void VisitFields(M&, V&) {}
template <Is<InspectCache> M, class V>
void VisitFields(M& m, V& visit) {
  visit("id", m.id);
  visit("isolation", m.isolation);
  visit("others", m.others);
  visit("known_version", m.known_version);
  visit("nodes_max", m.nodes_max, 0, kInspectedNodesMax);
}

// ---- events ----

template <Is<Divergence> M, class V>
void VisitFields(M& m, V& visit) {
  visit("at", m.at, 0);
  visit("shared", m.shared);
  visit("prompt", m.prompt);
  visit("cached", m.cached);
}
template <Is<PromptReady> M, class V>
void VisitFields(M& m, V& visit) {
  visit("prompt_tokens", m.prompt_tokens, 0, kSaidTokensMax);
  visit("cached_tokens", m.cached_tokens, 0, m.prompt_tokens);
  visit("miss", m.miss, kMissBytesMax);
  visit.IfAny("divergence", m.divergence);
  visit("build_ns", m.build_ns, 0, kSaidTimeMax);
  visit("restore_ns", m.restore_ns, 0, kSaidTimeMax);
  visit("sampling", m.sampling, kSamplingBytesMax);
}
template <Is<PrefillProgress> M, class V>
void VisitFields(M& m, V& visit) {
  visit("computed_tokens", m.computed_tokens, 0);
}
template <Is<TokenCandidate> M, class V>
void VisitFields(M& m, V& visit) {
  visit("bytes", m.bytes, Binary());
  visit("id", m.id, 0);
  // A token of zero probability has minus infinity.
  visit("logprob", m.logprob, -std::numeric_limits<float>::infinity());
}
template <Is<TokenLogprob> M, class V>
void VisitFields(M& m, V& visit) {
  visit("chosen", m.chosen);
  visit("top", m.top);
  visit("rank", m.rank, 0);
}
template <Is<TextDelta> M, class V>
void VisitFields(M& m, V& visit) {
  visit("text", m.text);
  visit("tokens", m.tokens, 0);
  visit.IfAny("logprobs", m.logprobs);
  visit.IfAny("thinking", m.thinking);
  visit.IfAny("tool_calls", m.tool_calls);
  visit.IfAny("token_ids", m.token_ids);
  visit.IfAny("state", m.state);
  visit.IfAny("state_at_shift", m.state_at_shift);
  visit.IfAny("prompt", m.prompt);
}
template <Is<DraftUsage> M, class V>
void VisitFields(M& m, V& visit) {
  visit("rounds", m.rounds, 0, kSaidTokensMax);
  visit("drafted", m.drafted, 0, kSaidTokensMax);
  visit("accepted", m.accepted_by_position, kDraftPositionsMax);
  visit("rollback_ns", m.rollback_ns, 0, kSaidTimeMax);
}
template <Is<Usage> M, class V>
void VisitFields(M& m, V& visit) {
  visit("prompt_tokens", m.prompt_tokens, 0, kSaidTokensMax);
  visit("cached_tokens", m.cached_tokens, 0, m.prompt_tokens);
  visit("output_tokens", m.output_tokens, 0, kSaidTokensMax);
  visit("reasoning_tokens", m.reasoning_tokens, 0, m.output_tokens);
  visit("queue_ns", m.queue_ns, 0, kSaidTimeMax);
  visit("prompt_ns", m.prompt_ns, 0, kSaidTimeMax);
  visit("output_ns", m.output_ns, 0, kSaidTimeMax);
  visit("draft", m.draft);
}
template <Is<Finished> M, class V>
void VisitFields(M& m, V& visit) {
  visit("reason", m.reason, FinishReason::kLength);
  visit("stop_string", m.stop_string, kStopBytesMax);
  visit("usage", m.usage);
  visit("prompt_dropped", m.prompt_dropped, 0);
  visit("in_thinking", m.in_thinking);
  visit("context", m.context);
  visit("embedding", m.embedding);
}
template <Is<Failed> M, class V>
void VisitFields(M& m, V& visit) {
  visit("error", m.error);
}

// ---- runner -> daemon ----

template <Is<Hello> M, class V>
void VisitFields(M& m, V& visit) {
  visit("version", m.version, 0, std::numeric_limits<uint16_t>::max());
  visit("pid", m.pid, 1);
}
template <Is<LoadProgress> M, class V>
void VisitFields(M& m, V& visit) {
  visit("fraction", m.fraction, 0, 1);
  visit("stage", m.stage);
}
template <Is<MemoryEstimate> M, class V>
void VisitFields(M& m, V& visit) {
  visit("weight_bytes", m.weight_bytes, 0, kSaidBytesMax);
  visit("scratch_bytes", m.scratch_bytes, 0, kSaidBytesMax);
  visit("cache_bytes", m.cache_bytes, 0, kSaidBytesMax);
  visit("cache_min_bytes", m.cache_min_bytes, 0, kSaidBytesMax);
  visit("streamed_bytes", m.streamed_bytes, 0, kSaidBytesMax);
}
template <Is<ModelInfo> M, class V>
void VisitFields(M& m, V& visit) {
  visit("architecture", m.architecture);
  visit("context_length", m.context_length, 0);
  visit("num_ctx", m.num_ctx, 0);
  visit("parameters", m.parameters, 0);
  visit("weight_bytes", m.weight_bytes, 0, kSaidBytesMax);
  visit("cache_bytes", m.cache_bytes, 0, kSaidBytesMax);
  visit("supports_fim", m.supports_fim);
  visit("draft_architecture", m.draft_architecture);
}
template <Is<Loaded> M, class V>
void VisitFields(M& m, V& visit) {
  visit("info", m.info);
  visit("load_ns", m.load_ns, 0);
}
template <Is<LoadFailed> M, class V>
void VisitFields(M& m, V& visit) {
  visit("error", m.error);
}
template <Is<Inspected> M, class V>
void VisitFields(M& m, V& visit) {
  visit("model_info", m.model_info_json);
  visit("tensors", m.tensors_json);
  visit("chat_template", m.chat_template);
  visit("quantization", m.quantization);
  visit("parameters", m.parameters, 0);
  visit.IfAny("error", m.error);
  visit("capabilities", m.capabilities);
  visit.IfAny("projector_info", m.projector_info_json);
  visit("template_error", m.template_error);
  visit("repairs", m.repairs);
  visit("sampling", m.sampling_json, kSamplingBytesMax);
  visit("sampling_source", m.sampling_source);
  visit("tokenizer", m.tokenizer_json);
  visit.IfAny("memory", m.memory);
  visit("context_length", m.context_length, 0);
  visit("num_ctx", m.num_ctx, 0);
}
template <Is<Converted> M, class V>
void VisitFields(M& m, V& visit) {
  visit.IfAny("error", m.error);
}
template <Is<RequestEvent> M, class V>
void VisitFields(M& m, V& visit) {
  visit("id", m.id);
  visit("event", m.event);
}
template <Is<Heartbeat> M, class V>
void VisitFields(M& m, V& visit) {
  visit("progress", m.progress);
  visit("steps", m.steps);
  visit("running", m.running, 0);
  visit("waiting", m.waiting, 0);
  visit("cache_bytes_used", m.cache_bytes_used, 0, kSaidBytesMax);
  visit("prefix_snapshots", m.prefix_snapshots, 0, kSaidBytesMax);
  visit("prefix_bytes", m.prefix_bytes, 0, kSaidBytesMax);
  visit("prefix_evictions", m.prefix_evictions);
}
template <Is<InspectedSequence> M, class V>
void VisitFields(M& m, V& visit) {
  visit("id", m.id);
  visit("wait", m.wait, WaitReason::kReader);
  visit("preempted", m.preempted);
  visit("prompt_tokens", m.prompt_tokens, 0);
  visit("computed_tokens", m.computed_tokens, 0);
  visit("output_tokens", m.output_tokens, 0);
  visit("prefill_ns", m.prefill_ns, 0);
  visit("virtual_time", m.virtual_time, 0);
}
template <Is<EngineInspected> M, class V>
void VisitFields(M& m, V& visit) {
  visit("id", m.id);
  visit("sequences", m.sequences, kInspectedSequencesMax);
  visit("building", m.building, 0);
  visit("steps", m.steps);
  visit("decoding", m.decoding, 0);
  visit("prefilling", m.prefilling, 0);
  visit("prefill_tokens", m.prefill_tokens, 0);
  visit("draft_tokens", m.draft_tokens, 0);
  visit("step_ns", m.step_ns, 0);
}
template <Is<InspectedNode> M, class V>
void VisitFields(M& m, V& visit) {
  visit("id", m.id);
  visit("parent", m.parent);
  visit("tree", m.tree, 0);
  visit("from", m.from, 0);
  visit("to", m.to, m.from);
  visit("kv_bytes", m.kv_bytes, 0);
  visit("window_bytes", m.window_bytes, 0);
  visit("state_bytes", m.state_bytes, 0);
  visit("shared_bytes", m.shared_bytes, 0);
  visit("restore_point", m.restore_point);
  visit("marked", m.marked);
  visit("in_use", m.in_use, 0);
  visit("evicted_children", m.evicted_children, 0);
  visit("hits", m.hits);
  visit("age_ms", m.age_ms, 0);
  visit("idle_ms", m.idle_ms, 0);
  visit.IfAny("begin", m.begin);
  visit.IfAny("end", m.end);
}
template <Is<CacheInspected> M, class V>
void VisitFields(M& m, V& visit) {
  visit("id", m.id);
  visit("version", m.version);
  visit("unchanged", m.unchanged);
  visit("nodes", m.nodes, kInspectedNodesMax);
  visit("nodes_left_out", m.nodes_left_out, 0);
  visit("budget_bytes", m.budget_bytes, 0);
  visit("bytes", m.bytes, 0);
  visit("other_keys", m.other_keys, 0);
  visit("other_nodes", m.other_nodes, 0);
}

}  // namespace quire::api::ipc
