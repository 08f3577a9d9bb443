// How a model chats: its template, and the form of its answers.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/ipc/messages.h"
#include "runner/output/format.h"
#include "runner/prompt/prompt_template.h"
#include "runner/tokenizer/tokenizer.h"
#include "runner/weights/model_files.h"

namespace quire::runner::engine {

struct ChatForm {
  std::shared_ptr<const PromptTemplate> prompt_template;
  output::Format format;
  std::string source;              // Jinja; of the files or of a known prompt format
  std::vector<std::string> notes;  // what was decided, a line each, for people
};

// The template of the files or, where they bring none, a known prompt format (runner/prompt/chat_format.h).
// `go_template` goes before it unless it is empty; one that cannot be read is left aside where there is
// another. A model with a template that shows no tools, or without a tool call syntax that is known, gets a
// generic one. kBadModel names the file and the reason.
api::Result<ChatForm> ReadChatForm(const weights::ModelFiles& files, const tokenizer::Tokenizer& tokenizer,
                                   const api::ipc::PromptNames& names, std::string_view go_template);

// What /api/show tells of it without loading weights: the capabilities ("completion", and those of the
// template), the template, and the notes, added to the repairs.
void DescribeChats(const weights::ModelFiles& files, const api::ipc::PromptNames& names,
                   std::string_view go_template, api::ipc::Inspected& described);

}  // namespace quire::runner::engine
