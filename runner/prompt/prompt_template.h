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
#include "runner/prompt/turns.h"

namespace quire::runner {

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
  // The texts of special tokens by the names that templates have for them ("bos_token", "eos_token",
  // "unk_token", ...).
  using Tokens = std::vector<std::pair<std::string, std::string>>;

  // The chat template of the model at `path`; for requests with tools `tool_use`, unless that is empty. One
  // that cannot be read costs chats only: Render() says what is wrong. kBadModel names the file: a token is
  // not UTF-8. Like Parse() and ParseGo(), it shows the template small conversations and finds out what it
  // refuses or drops (turn_probe.h). `write_calls`: how the model writes calls.
  static api::Result<std::shared_ptr<const PromptTemplate>> Build(std::string_view source,
                                                                  std::string_view tool_use,
                                                                  std::string_view path, Tokens tokens,
                                                                  WriteCalls write_calls = WriteGenericCalls);
  // For a model without one: messages are refused with kUnsupported and this reason.
  static std::shared_ptr<const PromptTemplate> Without(std::string refusal);
  // The same from the template's text alone. kBadModel names the line.
  static api::Result<std::shared_ptr<const PromptTemplate>> Parse(std::string_view source, Tokens tokens = {},
                                                                  WriteCalls write_calls = WriteGenericCalls);
  // From a Go template, as a Modelfile's TEMPLATE has it. kBadModel names the line. `write_calls` null:
  // without finding anything out, for one that serves a single request without tools.
  static api::Result<std::shared_ptr<const PromptTemplate>> ParseGo(std::string_view source,
                                                                    WriteCalls write_calls = nullptr);

  // What is put in another way than a request says it, a line each.
  const std::vector<std::string>& notes() const { return notes_; }
  // Shapes of conversations that the template refuses, or of which it drops a text, in every way.
  const std::vector<std::string>& unserved() const { return unserved_; }
  const TurnRules& rules() const { return rules_; }
  bool readable() const { return !std::holds_alternative<api::Error>(template_); }

  // The prompt up to where the model's answer begins, or to where `ending` says. A last message of the
  // assistant's is an answer to go on with: the prompt then ends right behind its content. `now` is what
  // strftime_now shows. Neighboring segments differ in origin. kInvalidArgument carries what the template
  // says of the messages; kUnsupported: the template does not show the answer to go on with.
  //
  // `placeholder` is what stands for an image (ImageProcessor::placeholder); empty: the model takes none, and
  // images are kUnsupported. The segments from the template have it once for each image, in their order; a
  // text of the request that spells it is in another segment. kUnsupported: the template cannot show them.
  // `spelled` has the placeholder once, and goes where the template writes none; empty: the placeholder.
  api::Result<std::vector<PromptSegment>> Render(std::span<const api::Message> messages,
                                                 std::span<const api::Tool> tools, const std::tm& now,
                                                 const ThinkingSwitch& thinking = {},
                                                 api::PromptEnd ending = api::PromptEnd::kAuto,
                                                 std::string_view placeholder = {},
                                                 std::string_view spelled = {}) const;
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
  // Not empty: no template can be used, and Render() returns this.
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
  using Parsed = std::variant<jinja::Template, gotemplate::Template, api::Error>;
  PromptTemplate(Parsed parsed, Tokens tokens, WriteCalls write_calls)
      : template_(std::move(parsed)), tokens_(std::move(tokens)), write_calls_(std::move(write_calls)) {}

  // What a rendering shows beside messages and tools.
  struct Setting {
    std::string_view suffix = {};  // behind the last message's content
    bool add_generation_prompt = false;
    std::tm now = {};
    ThinkingSwitch thinking = {};
    std::string_view placeholder = {}, spelled = {};  // of images
    bool spell_images = false;                        // they are texts in the content, not parts of their own
  };
  api::Result<jinja::TrackedText> RenderText(std::span<const api::Message> messages,
                                             std::span<const api::Tool> tools, const Setting& setting,
                                             const TurnRules& rules, ArgumentStyle style) const;
  api::Result<jinja::TrackedText> RenderJinja(std::span<const Turn> turns, std::span<const api::Tool> tools,
                                              const Setting& setting, const TurnRules& rules,
                                              ArgumentStyle style) const;
  // As RenderAnyhow(), of messages that may have images: parts of the content where the template shows them,
  // else texts in it.
  api::Result<jinja::TrackedText> RenderImages(std::span<const api::Message> messages,
                                               std::span<const api::Tool> tools, Setting setting) const;
  // The same as RenderText(), and where the template refuses it the plainest form that it takes.
  api::Result<jinja::TrackedText> RenderAnyhow(std::span<const api::Message> messages,
                                               std::span<const api::Tool> tools,
                                               const Setting& setting) const;
  void Probe(std::string_view source);
  jinja::Value ProbeNoTools();
  ArgumentStyle ProbeArgumentStyle() const;

  Parsed template_;
  std::string go_source_;
  std::string refusal_;
  Tokens tokens_;
  WriteCalls write_calls_;
  jinja::Value no_tools_;  // what stands for no tools: None, or an empty list
  ArgumentStyle style_ = ArgumentStyle::kObjects;
  TurnRules rules_;
  std::vector<std::string> notes_, unserved_;
  std::shared_ptr<const PromptTemplate> with_tools_;  // takes requests with tools; or null
};

}  // namespace quire::runner
