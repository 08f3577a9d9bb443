// A model's chat template, parsed once, and the prompt text that messages make with it.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/base/error.h"
#include "api/base/request.h"
#include "runner/gotemplate/template.h"
#include "runner/jinja/template.h"
#include "runner/prompt/message_values.h"

namespace quire::runner {

// A stretch of the rendered prompt. What came from the request (contents, names, tools) is not from the
// template, so that the tokenizer can read special-token text in it as the plain text it is. A role that
// every chat knows counts as the template's: many build their markers of it.
struct PromptSegment {
  std::string text;
  bool from_template = false;
};

// Template variables of a request; those about thinking are none when unset.
struct ThinkingSwitch {
  std::optional<bool> on = {};
  std::string effort = {};          // "low", "medium" or "high"
  std::string arguments_json = {};  // more variables, an object; empty: none
};

// Seconds since the epoch, in local time. 0: this moment.
std::tm LocalTime(int64_t seconds);

// Immutable; any thread.
class PromptTemplate {
 public:
  // The texts of special tokens by the names that templates have for them ("bos_token", "eos_token", "unk_token", ...).
  using Tokens = std::vector<std::pair<std::string, std::string>>;

  // The chat template of the model at `path`. kBadModel names the file and the line.
  static api::Result<std::shared_ptr<const PromptTemplate>> Build(std::string_view source,
                                                                  std::string_view path, Tokens tokens);
  // Of a model without one: messages are refused with kUnsupported and this reason.
  static std::shared_ptr<const PromptTemplate> Without(std::string refusal);
  // The same from the template's text alone.
  static api::Result<std::shared_ptr<const PromptTemplate>> Parse(std::string_view source,
                                                                  Tokens tokens = {});
  // From a Go template, as a Modelfile's TEMPLATE has it. kBadModel names the line.
  static api::Result<std::shared_ptr<const PromptTemplate>> ParseGo(std::string_view source);

  // The prompt up to where the model's answer begins, or to where `ending` says. A last message of the assistant's is
  // an answer to go on with: the prompt then ends right behind its content. `now` is what strftime_now shows. Neighboring segments differ in origin. kInvalidArgument carries
  // what the template says of the messages; kUnsupported: the template does not show the answer to go on
  // with.
  api::Result<std::vector<PromptSegment>> Render(std::span<const api::Message> messages,
                                                 std::span<const api::Tool> tools, const std::tm& now,
                                                 const ThinkingSwitch& thinking = {},
                                                 api::PromptEnd ending = api::PromptEnd::kAuto) const;
  // The same at this moment: each rendering of a request must show the time of the request instead.
  api::Result<std::vector<PromptSegment>> Render(std::span<const api::Message> messages,
                                                 std::span<const api::Tool> tools,
                                                 const ThinkingSwitch& thinking = {},
                                                 api::PromptEnd ending = api::PromptEnd::kAuto) const;

  // The prompt for filling in the middle between two texts. kUnsupported: the template does not know .Suffix.
  api::Result<std::vector<PromptSegment>> RenderFim(std::string_view prefix, std::string_view suffix,
                                                    const std::tm& now) const;
  bool SupportsFim() const { return UsesGo("Suffix"); }

  // Whether this is a Go template that takes a field of this name.
  bool UsesGo(std::string_view field) const;
  // Not empty: there is no template, and Render() returns this.
  const std::string& refusal() const { return refusal_; }
  // The template's text where it is a Go template, otherwise empty.
  const std::string& go_source() const { return go_source_; }

  // How the template writes turns, seen from a conversation of one message.
  struct Turns {
    std::string user_turn;      // up to the answer
    std::string answer_header;  // what is put before an answer behind it; may be empty
  };
  // Nothing where the template does not render a lone user message.
  std::optional<Turns> ProbeTurns() const;

 private:
  PromptTemplate(std::variant<jinja::Template, gotemplate::Template> parsed, Tokens tokens)
      : template_(std::move(parsed)), tokens_(std::move(tokens)) {}

  api::Result<jinja::TrackedText> RenderText(std::span<const api::Message> messages,
                                             std::span<const api::Tool> tools, std::string_view suffix,
                                             bool add_generation_prompt, ArgumentStyle style,
                                             const std::tm& now, const ThinkingSwitch& thinking = {}) const;
  jinja::Value ProbeNoTools();
  ArgumentStyle ProbeArgumentStyle() const;

  std::variant<jinja::Template, gotemplate::Template> template_;
  std::string go_source_;
  std::string refusal_;
  Tokens tokens_;
  jinja::Value no_tools_;  // what stands for no tools: None, or an empty list
  ArgumentStyle style_ = ArgumentStyle::kObjects;
};

}  // namespace quire::runner
