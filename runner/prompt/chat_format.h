// Which chat template a model is spoken to with: that of its files or, where they bring none, a known prompt
// format that the manifest names or the family and the vocabulary show. No format is taken whose special
// tokens the vocabulary lacks.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/ipc/messages.h"
#include "runner/weights/model_files.h"

namespace quire::runner {

struct ChatFormat {
  std::string source = {};  // Jinja; empty: no format is known, and messages are refused with `refusal`
  std::string refusal = {};
  bool of_family = false;      // `source` is one of format_table.h
  std::string answers = {};    // the template that shows how answers are written; empty: the one in use does
  bool plain_answers = false;  // answers are text, whatever a template shows
  std::vector<std::string> notes =
      {};  // what was decided for files without a template, a line each, for people
};

// `has_token` tells whether the vocabulary has a token of exactly this text. `go_template`: the manifest's
// template goes before what is chosen here.
ChatFormat ChooseChatFormat(const weights::ModelFiles& files, const api::ipc::PromptNames& names,
                            bool go_template, const std::function<bool(std::string_view)>& has_token);

}  // namespace quire::runner
