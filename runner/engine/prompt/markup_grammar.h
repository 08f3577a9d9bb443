// A model's markup as grammar expressions.
#pragma once

#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/json/type.h"
#include "runner/constraint/grammar_expr.h"
#include "runner/constraint/schema.h"
#include "runner/output/answer_markup.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {

// Whether grammars know the token as itself, not by its bytes: a special token, or a marker of thinking or
// calls.
bool IsMarkup(const tokenizer::Tokenizer& tokenizer, api::TokenId id);
// As a grammar reads it: such tokens in it as themselves.
std::string MarkupBytes(const tokenizer::Tokenizer& tokenizer, std::string_view text);
// The same as an expression; digits where a call's number stands.
constraint::ExprRef MarkupText(const tokenizer::Tokenizer& tokenizer, std::string_view text);

// A call of the tool `name` with its arguments between tags. `parameters`: a schema, or null where the tool
// has none. kUnsupported where tags cannot express such a call.
api::Result<constraint::ExprRef> TaggedCall(const output::TaggedArguments& tags, std::string_view name,
                                            const api::Json& parameters, constraint::Enforcement enforcement,
                                            const tokenizer::Tokenizer& tokenizer,
                                            constraint::GrammarBuilder& builder);

}  // namespace quire::runner::engine
