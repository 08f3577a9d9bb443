#include "runner/engine/prompt/chat_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "runner/engine/prompt/fim_prompt.h"
#include "runner/models/encoder.h"
#include "runner/models/rank_head.h"
#include "runner/models/sentence_pooling.h"
#include "runner/output/answer_markup.h"
#include "runner/output/write_calls.h"
#include "runner/prompt/chat_format.h"
#include "runner/tokenizer/config_tokens.h"
#include "runner/tokenizer/model_tokenizer.h"
#include "runner/work/log_line.h"

namespace quire::runner::engine {
namespace {

std::string TextOf(const tokenizer::Tokenizer& tokenizer, std::optional<api::TokenId> id) {
  return id ? std::string(tokenizer.TokenBytes(*id)) : "";
}

// BOS and EOS as the tokenizer has them, the others as the files name them.
PromptTemplate::Tokens TemplateTokens(const weights::ModelFiles& files,
                                      const tokenizer::Tokenizer& tokenizer) {
  PromptTemplate::Tokens tokens = {{"bos_token", TextOf(tokenizer, tokenizer.bos_id())},
                                   {"eos_token", TextOf(tokenizer, tokenizer.eos_id())}};
  if (files.format() == weights::Format::kGguf) {
    for (const auto& [name, key] : {std::pair{"unk_token", "tokenizer.ggml.unknown_token_id"},
                                    {"sep_token", "tokenizer.ggml.seperator_token_id"},
                                    {"pad_token", "tokenizer.ggml.padding_token_id"},
                                    {"cls_token", "tokenizer.ggml.cls_token_id"},
                                    {"mask_token", "tokenizer.ggml.mask_token_id"}}) {
      const auto id = files.config().find(key);
      if (id == files.config().end() || !id->is_number_unsigned()) continue;
      if (id->get<uint64_t>() >= static_cast<uint64_t>(tokenizer.vocab_size())) continue;
      tokens.emplace_back(name, TextOf(tokenizer, id->get<api::TokenId>()));
    }
    return tokens;
  }
  for (const char* name : tokenizer::kNamedTokens) {
    const std::string_view text = tokenizer::ConfigToken(files.tokenizer_config(), name);
    const auto known = std::ranges::find(tokens, name, &PromptTemplate::Tokens::value_type::first);
    if (known == tokens.end()) {
      if (!text.empty()) tokens.emplace_back(name, text);
    } else if (known->second.empty()) {
      known->second = text;
    }
  }
  return tokens;
}

// As Inspected::tokenizer_json has it. Names come from the file, so bytes that are no UTF-8 are replaced.
std::string DescribeTokenizer(const weights::ModelFiles& files, const tokenizer::Tokenizer& tokenizer) {
  nlohmann::ordered_json described = nlohmann::ordered_json::object();
  for (const auto& [name, text] : TemplateTokens(files, tokenizer)) {
    if (!text.empty()) described[name] = text;
  }
  described["add_bos_token"] = tokenizer.add_bos();
  described["add_eos_token"] = tokenizer.add_eos();
  return described.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::function<bool(std::string_view)> TokenTest(const tokenizer::Tokenizer& tokenizer) {
  return [&tokenizer](std::string_view text) {
    const auto tokens = tokenizer.Encode(text, tokenizer::SpecialTokens::kParse);
    return tokens && tokens->size() == 1;
  };
}

// How answers are read, as far as the template `source` and the vocabulary tell.
output::Format FormatOf(const ChatFormat& chat, std::string_view source,
                        const tokenizer::Tokenizer& tokenizer) {
  if (chat.plain_answers) return output::Detect("", [](std::string_view) { return false; });
  const bool parser = !chat.answers.empty();
  output::Format format =
      output::Detect(parser ? std::string_view(chat.answers) : source, TokenTest(tokenizer));
  if (parser) format.has_efforts = output::Detect(source, TokenTest(tokenizer)).has_efforts;
  if (format.calls == nullptr && !format.harmony && !source.empty()) {
    format.calls = &output::GenericCalls();
    format.generic_calls = true;
  }
  return format;
}

WriteCalls WriterOf(const output::Format& format) {
  if (output::MarkupOf(format).calls == nullptr) return WriteGenericCalls;
  return [format](std::span<const api::ToolCall> calls) {
    std::vector<PromptSegment> segments;
    for (output::CallText& part : output::WriteCalls(format, calls)) {
      segments.push_back({std::move(part.text), part.markup});
    }
    return segments;
  };
}

// Whether tools get into the prompt in some way.
bool TakesTools(const PromptTemplate& prompt_template) {
  return prompt_template.readable() &&
         std::ranges::find(prompt_template.unserved(), "tools") == prompt_template.unserved().end();
}

}  // namespace

api::Result<ChatForm> ReadChatForm(const weights::ModelFiles& files, const tokenizer::Tokenizer& tokenizer,
                                   const api::ipc::PromptNames& names, std::string_view go_template) {
  ChatFormat chat = ChooseChatFormat(files, names, !go_template.empty(), TokenTest(tokenizer));
  ChatForm form;
  form.notes = std::move(chat.notes);
  const auto finish = [&] {
    form.format.takes_tools = TakesTools(*form.prompt_template);
    std::ranges::copy(form.prompt_template->notes(), std::back_inserter(form.notes));
    form.source = std::move(chat.source);
    return std::move(form);
  };
  if (!go_template.empty()) {
    form.format = FormatOf(chat, go_template, tokenizer);
    auto parsed = PromptTemplate::ParseGo(go_template, WriterOf(form.format));
    if (parsed) {
      form.prompt_template = *std::move(parsed);
      form.format.can_think = (form.format.can_think || form.prompt_template->UsesGo("Think")) &&
                              (form.format.thinking || form.format.harmony);
      return finish();
    }
    if (parsed.error().code == api::ErrorCode::kUnavailable) return std::unexpected(parsed.error());
    if (chat.source.empty()) {
      form.notes.push_back(fmt::format("TEMPLATE: {}; chats are refused", parsed.error().message));
      form.prompt_template = PromptTemplate::Without(
          fmt::format("the model's TEMPLATE cannot be read, so it cannot chat: {}", parsed.error().message));
      return finish();
    }
    LogLine("using the chat template from the model file: " + parsed.error().message);
  }
  const std::string tool_use = files.named_chat_template("tool_use");
  form.format = FormatOf(chat, chat.source + tool_use, tokenizer);
  // A family's format is asked to think only where the vocabulary can say so.
  const output::ThinkingForm* thinking = form.format.thinking;
  if (chat.of_family && thinking != nullptr && !form.format.HasTokenOf(thinking->begin)) {
    form.format.can_think = false;
  }
  if (chat.source.empty()) {
    form.prompt_template = PromptTemplate::Without(chat.refusal);
    return finish();
  }
  auto built = PromptTemplate::Build(chat.source, tool_use, files.path(), TemplateTokens(files, tokenizer),
                                     WriterOf(form.format));
  if (!built) return std::unexpected(built.error());
  form.prompt_template = *std::move(built);
  return finish();
}

void DescribeChats(const weights::ModelFiles& files, const api::ipc::PromptNames& names,
                   std::string_view go_template, api::ipc::Inspected& described) {
  described.chat_template = files.chat_template();
  std::vector<std::string>& capabilities = described.capabilities;
  if (models::IsEncoder(files)) {
    capabilities = {models::HasScoreHead(files) ? "rerank" : "embedding"};
    return;
  }
  if (models::RanksByAnswer(files) || models::IsSavedWithoutHead(files)) {
    capabilities = {models::RanksByAnswer(files) ? "rerank" : "embedding"};
    return;
  }
  capabilities = {"completion"};
  const auto tokenizer = tokenizer::LoadTokenizer(files);
  if (!tokenizer) return;
  described.tokenizer_json = DescribeTokenizer(files, **tokenizer);
  auto chat = ReadChatForm(files, **tokenizer, names, go_template);
  if (chat && chat->format.supports_tools()) capabilities.emplace_back("tools");
  if (chat && chat->format.can_think) capabilities.emplace_back("thinking");
  if ((chat && chat->prompt_template->SupportsFim()) || FindFimTokens(**tokenizer)) {
    capabilities.emplace_back("insert");
  }
  if (!chat) return;
  described.chat_template = std::move(chat->source);
  std::ranges::move(chat->notes, std::back_inserter(described.repairs));
}

}  // namespace quire::runner::engine
