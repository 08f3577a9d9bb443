// What clients of other servers send, on every route that generates: a field changes the request, or it is
// refused by its name, or it is known to change no answer, or it is logged. None is ignored in silence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "api/ipc/messages.h"
#include "api/llama_server/completion.h"
#include "api/openai/chat.h"
#include "api/openai/completions.h"
#include "api/openai/responses.h"

namespace quire::api::openai {
namespace {

constexpr std::string_view kRoutes = "CPRL";  // chat, completions, responses, llama.cpp's /completion

struct Outcome {
  Error error = {};  // `message` is empty: it was parsed
  std::vector<std::string> logged = {};
  std::vector<std::string> requests = {};  // as they go to a runner
};

std::string FrameOf(Request request) {
  return ipc::Encode(ipc::ToRunner(ipc::Submit{RequestId{1}, std::move(request)}));
}

template <class Parsed>
Outcome OutcomeOf(Result<Parsed> parsed, const ModelDefaults& defaults) {
  if (!parsed) return {parsed.error()};
  Outcome outcome{.logged = parsed->unknown_options};
  if constexpr (requires { ToRequests(*parsed, defaults); }) {
    for (Request& request : ToRequests(*std::move(parsed), defaults))
      outcome.requests.push_back(FrameOf(std::move(request)));
  } else {
    int32_t n = 1;
    if constexpr (requires { parsed->n; }) n = parsed->n;
    for (Request& request : ToChoices(ToRequest(*std::move(parsed), defaults), n))
      outcome.requests.push_back(FrameOf(std::move(request)));
  }
  return outcome;
}

// `member`: one of a body, with a comma behind it; or nothing.
Outcome Send(char route, const std::string& member) {
  // With values that are not the neutral ones, so that whatever overrides them shows.
  ModelDefaults defaults;
  defaults.options.repeat_penalty = 1.5F;
  defaults.options.min_p = 0.25F;
  defaults.options.xtc_probability = 0.25F;
  const std::string begin = "{" + member;
  if (route == 'C')
    return OutcomeOf(ParseChat(begin + R"("model":"M","messages":[{"role":"user","content":"x"}]})"),
                     defaults);
  if (route == 'P') return OutcomeOf(ParseCompletion(begin + R"("model":"M","prompt":"x"})"), defaults);
  if (route == 'R') return OutcomeOf(ParseResponses(begin + R"("model":"M","input":"x"})"), defaults);
  return OutcomeOf(llama_server::ParseCompletion(begin + R"("prompt":"x"})"), defaults);
}

struct Known {
  std::string member;
  // For each of kRoutes. h: honored, the runner's request is another; y: only the reply is; r: refused by
  // name; -: changes no answer; l: unknown, logged.
  std::string expected;
};

std::string NameOf(const std::string& member) { return member.substr(1, member.find('"', 1) - 1); }

char KindOf(char route, const std::string& name, const Outcome& outcome) {
  if (!outcome.error.message.empty()) {
    const bool named = outcome.error.field == name || outcome.error.field.starts_with(name + ".");
    return named && outcome.error.message.find(name) != std::string::npos ? 'r' : '?';
  }
  const bool logged = std::ranges::find(outcome.logged, name) != outcome.logged.end();
  if (logged) return 'l';
  return outcome.requests != Send(route, "").requests ? 'h' : '-';
}

TEST(KnownFields, AreHonoredRefusedOrLogged) {
  const std::vector<Known> table = {
      // Samplers of llama.cpp, vLLM and their like.
      {R"("temperature":0.5)", "hhhh"},
      {R"("top_p":0.5)", "hhhh"},
      {R"("top_k":5)", "hhhh"},
      {R"("min_p":0.5)", "hhhh"},
      {R"("typical_p":0.5)", "hhhh"},
      {R"("repeat_last_n":5)", "hhhh"},
      {R"("repeat_penalty":1.25)", "hhhh"},
      {R"("repetition_penalty":1.25)", "hhhh"},
      {R"("presence_penalty":0.5)", "hhhh"},
      {R"("frequency_penalty":0.5)", "hhhh"},
      {R"("dry_multiplier":0.5)", "hhhh"},
      {R"("xtc_threshold":0.5)", "hhhh"},
      {R"("top_n_sigma":1)", "hhhh"},
      {R"("mirostat":2)", "hhhh"},
      {R"("samplers":["top_k"])", "hhhh"},
      {R"("seed":5)", "hhhh"},
      {R"("logit_bias":{"5":1})", "hhhh"},
      {R"("ignore_eos":true)", "hhhh"},
      {R"("structured_output_whitespace":false)", "hhhh"},
      {R"("min_tokens":3)", "hhhh"},
      {R"("stop":["x"])", "hhhh"},
      {R"("stop_token_ids":[5])", "hhhh"},
      {R"("num_ctx":64)", "hhhh"},
      {R"("num_predict":5)", "hhhh"},
      {R"("n_predict":5)", "hhhh"},
      {R"("max_new_tokens":5)", "hhhh"},
      {R"("max_tokens":5)", "hhhh"},
      {R"("max_completion_tokens":5)", "hhhh"},
      {R"("typical":0.5)", "rrrr"},
      {R"("tfs":0.5)", "rrrr"},
      {R"("tfs_z":0.5)", "rrrr"},
      {R"("top_a":0.5)", "rrrr"},
      {R"("nsigma":1)", "rrrr"},
      {R"("min_keep":2)", "rrrr"},
      {R"("dynatemp_range":0.5)", "rrrr"},
      {R"("dynamic_temperature":true)", "rrrr"},
      {R"("smoothing_factor":0.5)", "rrrr"},
      {R"("adaptive_target":0.5)", "rrrr"},
      {R"("epsilon_cutoff":1)", "rrrr"},
      {R"("mirostat_mode":2)", "rrrr"},
      {R"("repetition_penalty_range":64)", "rrrr"},
      {R"("encoder_repetition_penalty":1.5)", "rrrr"},
      {R"("no_repeat_ngram_size":2)", "rrrr"},
      {R"("length_penalty":0.5)", "rrrr"},
      {R"("num_beams":2)", "rrrr"},
      {R"("use_beam_search":true)", "rrrr"},
      {R"("do_sample":false)", "rrrr"},
      {R"("guidance_scale":1.5)", "rrrr"},
      {R"("negative_prompt":"x")", "rrrr"},
      {R"("watermark":true)", "rrrr"},
      // What an answer may be.
      {R"("response_format":{"type":"json_object"})", "hhhh"},
      {R"("grammar":"root ::= [a]")", "hhhh"},
      {R"("json_schema":{"type":"null"})", "hhhh"},
      {R"("guided_json":{"type":"null"})", "hhhh"},
      {R"("guided_regex":"x")", "hhhh"},
      {R"("guided_choice":["x"])", "hhhh"},
      {R"("structured_outputs":{"regex":"x"})", "hhhh"},
      {R"("format":"json")", "hhhh"},
      {R"("guided_grammar":"x")", "rrrr"},
      {R"("regex":"x")", "hhhh"},
      {R"("ebnf":"x")", "rrrr"},
      {R"("structural_tag":"x")", "rrrr"},
      {R"("grammar_lazy":true)", "rrrr"},
      {R"("bad_words":["x"])", "rrrr"},
      {R"("allowed_token_ids":[5])", "rrrr"},
      {R"("banned_strings":["x"])", "rrrr"},
      {R"("ban_eos_token":true)", "rrrr"},
      {R"("stop_regex":"x")", "rrrr"},
      {R"("stop_sequences":["x"])", "rrrr"},
      {R"("include_stop_str_in_output":true)", "rrrr"},
      {R"("custom_logit_processor":"x")", "rrrr"},
      // The prompt.
      {R"("chat_template_kwargs":{"a":1})", "hrhr"},
      {R"("add_generation_prompt":true)", "hrhr"},
      {R"("add_special_tokens":false)", "-h-l"},
      {R"("add_special_tokens":true)", "r-rl"},
      {R"("chat_template":"x")", "rrrr"},
      {R"("documents":[{}])", "rrrr"},
      {R"("truncate_prompt_tokens":5)", "rrrr"},
      {R"("prompt_embeds":"x")", "rrrr"},
      {R"("system":"x")", "rlrl"},
      {R"("template":"x")", "rlrl"},
      {R"("images":["x"])", "rrrr"},
      {R"("tools":[{"type":"function","function":{"name":"f"},"name":"f"}])", "hrhr"},
      {R"("lora":[{"id":1}])", "rrrr"},
      {R"("transforms":["middle-out"])", "rrrr"},
      {R"("plugins":[{"id":"web"}])", "rrrr"},
      {R"("models":["a"])", "rrrr"},
      {R"("truncation":"auto")", "llhl"},
      // Thinking.
      {R"("enable_thinking":false)", "h-h-"},
      {R"("enable_thinking":true)", "hrhr"},
      {R"("think":true)", "hrhr"},
      {R"("think":"low")", "hrhr"},
      {R"("thinking":{"type":"disabled"})", "hrhr"},
      {R"("thinking":{"type":"enabled","budget_tokens":5})", "hrhr"},
      {R"("thinking_budget":5)", "hrhr"},
      {R"("thinking_token_budget":5)", "hrhr"},
      {R"("thinking_budget_tokens":5)", "hrhr"},
      {R"("max_thinking_tokens":5)", "hrhr"},
      {R"("reasoning_effort":"low")", "hrhr"},
      {R"("reasoning":{"effort":"low"})", "hrhr"},
      {R"("reasoning":{"enabled":false})", "hrhr"},
      {R"("reasoning_format":"none")", "rrrr"},
      {R"("separate_reasoning":false)", "rrrr"},
      // The reply.
      {R"("return_token_ids":true)", "rrrr"},
      {R"("return_tokens_as_token_ids":true)", "rrrr"},
      {R"("return_hidden_states":true)", "rrrr"},
      {R"("prompt_logprobs":1)", "hhrr"},
      {R"("skip_special_tokens":false)", "rrrr"},
      {R"("parse_tool_calls":false)", "rrrr"},
      {R"("post_sampling_probs":true)", "rrrr"},
      {R"("return_progress":true)", "--r-"},  // not a stream
      {R"("stream":true,"return_progress":true)", "hhrh"},
      {R"("n":2)", "hhrh"},
      {R"("top_logprobs":2)", "rrrl"},
      {R"("n_probs":2)", "rrrh"},
      {R"("response_fields":["content"])", "----"},
      {R"("return_tokens":true)", "rrr-"},
      {R"("n_indent":2)", "rrrh"},
      {R"("t_max_predict_ms":5)", "rrrh"},
      {R"("input_extra":[{"text":"x"}])", "rrrl"},
      // No answer depends on them.
      {R"("user":"x")", "----"},
      {R"("metadata":{"a":"b"})", "----"},
      {R"("store":true)", "----"},
      {R"("service_tier":"auto")", "----"},
      {R"("safety_identifier":"x")", "----"},
      {R"("prompt_cache_key":"x")", "----"},
      {R"("prediction":{"type":"content","content":"x"})", "----"},
      {R"("priority":1)", "----"},
      {R"("request_id":"x")", "----"},
      {R"("cache_prompt":true)", "----"},
      {R"("id_slot":1)", "----"},
      {R"("n_keep":5)", "---h"},
      {R"("t_max_prompt_ms":5)", "----"},
      {R"("provider":{"order":["x"]})", "----"},
      // In nobody's table, or about something that this server does not have.
      {R"("web_search_options":{})", "llll"},
      {R"("verbosity":"low")", "llll"},
      {R"("temprature":0.5)", "llll"},
  };
  for (const auto& [member, expected] : table) {
    const std::string name = member.starts_with(R"("stream")") ? "return_progress" : NameOf(member);
    for (size_t i = 0; i < kRoutes.size(); ++i) {
      const Outcome outcome = Send(kRoutes[i], member + ",");
      EXPECT_EQ(KindOf(kRoutes[i], name, outcome), expected[i])
          << member << " route " << kRoutes[i] << " " << outcome.error.message;
    }
  }
}

// What means nothing is not refused.
TEST(KnownFields, NeutralValuesAreAccepted) {
  for (const char* member :
       {R"("guided_grammar":null)", R"("bad_words":[])", R"("use_beam_search":false)",
        R"("length_penalty":1.0)", R"("skip_special_tokens":true)", R"("no_repeat_ngram_size":0)",
        R"("tfs_z":1)", R"("dynatemp_range":0)", R"("adaptive_target":-1)", R"("min_keep":0)",
        R"("transforms":[])", R"("lora":[])", R"("do_sample":true)", R"("smoothing_factor":0)",
        R"("n_probs":0)", R"("t_max_predict_ms":-1)", R"("response_fields":[])"}) {
    for (const char route : kRoutes) {
      const Outcome outcome = Send(route, std::string(member) + ",");
      EXPECT_EQ(outcome.error.message, "") << member << " route " << route;
      EXPECT_TRUE(outcome.logged.empty()) << member << " route " << route;
    }
  }
}

TEST(KnownFields, TheLogHasFewNamesOfMany) {
  std::string members;
  for (int i = 0; i < 100; ++i) members += "\"unknown" + std::to_string(i) + "\":1,";
  for (const char route : kRoutes) EXPECT_EQ(Send(route, members).logged.size(), 16U);
}

}  // namespace
}  // namespace quire::api::openai
