#include "runner/constraint/schema_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/utf8.h"
#include "api/json/read.h"
#include "runner/constraint/code_points.h"
#include "runner/constraint/formats.h"
#include "runner/constraint/grammar.h"
#include "runner/constraint/lark.h"
#include "runner/constraint/regex.h"
#include "runner/constraint/schema.h"
#include "runner/constraint/schema_keywords.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

using api::Json;

constexpr int kSchemaDepthMax = 96;       // schemas nested in each other
constexpr size_t kCombinationsMax = 512;  // of alternatives
constexpr size_t kSchemaEntriesMax = 20'000;
constexpr uint32_t kSchemaRulesMax = 20'000;
constexpr uint32_t kCharactersMax = uint32_t{1} << 20U;  // that `minLength` and `maxLength` may ask for
constexpr uint32_t kDistinctCharactersMax = 1000;        // where each count is a state

uint32_t CodePointCount(const std::string& text) { return static_cast<uint32_t>(api::CountCodePoints(text)); }

bool Within(uint32_t count, const Lengths& lengths) {
  return count >= lengths.min && (!lengths.max || count <= *lengths.max);
}

// Units of work to copy it, of some 8 bytes each.
size_t SizeOf(const SchemaNode& node) {
  return 64 + node.merged.size() * 8 + node.objects.size() * 12 + node.arrays.size() * 8 +
         node.alternatives.size() * 4 + (node.patterns.size() + node.formats.size()) * 4 +
         (node.property_names.size() + node.grammars.size()) * 4;
}

// A message of what cannot be compiled, not of what is broken.
bool MayLeaveOut(const api::Error& error) { return error.code == api::ErrorCode::kUnsupported; }

}  // namespace

void SchemaCompiler::Fail(api::Error error) {
  if (!error_) error_ = std::move(error);
}

api::Result<ExprRef> SchemaCompiler::Run() {
  ExprRef expr = Value({{&root_, SchemaPath("#")}});
  if (error_) return std::unexpected(std::move(*error_));
  return expr;
}

const AnyJson& SchemaCompiler::Any() {
  if (!any_) any_.emplace(builder_, style_);
  return *any_;
}

ExprRef SchemaCompiler::Value(SchemaRefs refs) {
  std::vector<const Json*> key;
  for (SchemaRef& ref : refs) {
    ref = Checked(reader_.Follow(ref), ref);
    key.push_back(ref.schema);
  }
  if (error_ && loosens_) {
    error_.reset();
    builder_.Loosen("$ref");
    return Any().value;
  }
  if (error_) return Never();
  const auto [found, added] = entries_.try_emplace(std::move(key));
  Entry& entry = found->second;
  if (added) order_.push_back(found);
  if (!added) {
    if (entry.done) return entry.expr;
    if (!entry.rule) entry.rule = builder_.Declare();
    return Call(*entry.rule);
  }
  const Mark before = mark();
  exhausted_ = entries_.size() > kSchemaEntriesMax || builder_.size() > kSchemaRulesMax;
  if (++depth_ > kSchemaDepthMax || exhausted_) {
    Fail({api::ErrorCode::kUnsupported, fmt::format("{}: the schema is too large or nested too deeply",
                                                    refs.empty() ? "#" : refs[0].path.Text())});
    return Never();
  }
  entry.expr = Compile(refs);
  if (error_ && loosens_) {
    error_.reset();
    Rewind(before);
    builder_.Loosen("a schema that cannot be compiled");
    entry.expr = LooseValue(refs);
  }
  depth_ = before.depth;
  entry.done = true;
  if (entry.rule) {
    builder_.Define(*entry.rule, entry.expr);
    entry.expr = Call(*entry.rule);
  }
  return entry.expr;
}

ExprRef SchemaCompiler::Compile(const SchemaRefs& refs) {
  SchemaNode node;
  for (const SchemaRef& ref : refs) {
    if (auto merged = reader_.Merge(node, ref); !merged) {
      Fail(std::move(merged.error()));
      return Never();
    }
  }
  if (node.assertions == 0 && node.alternatives.empty()) return Any().value;
  if (node.assertions == 0 && node.alternatives.size() == 1) {
    const SchemaRefs& choices = node.alternatives[0]->choices;
    return OneOf(choices.size(), [&](size_t i) { return Value({choices[i]}); });
  }
  std::vector<SchemaNode> nodes;
  Expand(std::move(node), nodes);
  return OneOf(nodes.size(), [&](size_t i) { return Leaf(nodes[i]); });
}

ExprRef SchemaCompiler::LooseValue(const SchemaRefs& refs) {
  SchemaNode node;
  for (const SchemaRef& ref : refs) {
    const Json* type = ref.schema->is_object() ? FindMember(*ref.schema, "type") : nullptr;
    if (type == nullptr) continue;
    if (auto read = ReadKeyword(node, {*ref.schema, *type, ref.path, "type"}); !read) continue;
  }
  return node.types == kAllTypes ? Any().value : Leaf(node);
}

ExprRef SchemaCompiler::OneOf(size_t count, const std::function<ExprRef(size_t)>& compile) {
  std::vector<ExprRef> exprs;
  std::optional<api::Error> left_out;
  for (size_t i = 0; i < count && !error_; ++i) {
    const Mark before = mark();
    ExprRef expr = compile(i);
    if (!error_) {
      exprs.push_back(std::move(expr));
    } else if (MayLeaveOut(*error_) && !exhausted_) {
      if (!left_out) left_out = std::move(error_);
      error_.reset();
      Rewind(before);
    }
  }
  if (left_out && !error_) {
    if (exprs.empty()) Fail(*std::move(left_out));
    builder_.Loosen("an alternative of anyOf");
  }
  return error_ ? Never() : Choice(std::move(exprs));
}

void SchemaCompiler::Rewind(const Mark& mark) {
  for (; order_.size() > mark.entries; order_.pop_back()) entries_.erase(order_.back());
  depth_ = mark.depth;
}

void SchemaCompiler::Expand(SchemaNode node, std::vector<SchemaNode>& out) {
  if (error_) return;
  CountWork(SizeOf(node));
  if (node.alternatives.empty()) {
    out.push_back(std::move(node));
    return;
  }
  const auto group = std::move(node.alternatives.back());
  node.alternatives.pop_back();
  std::optional<api::Error> left_out;
  const size_t before = out.size();
  for (const SchemaRef& choice : group->choices) {
    CountWork(SizeOf(node));
    SchemaNode merged = node;
    if (auto done = reader_.Merge(merged, choice, group->within); !done) {
      if (!MayLeaveOut(done.error())) return Fail(std::move(done.error()));
      if (!left_out) left_out = std::move(done.error());
      continue;
    }
    Expand(std::move(merged), out);
    if (out.size() > kCombinationsMax) {
      Fail({api::ErrorCode::kUnsupported, fmt::format("{}: more than {} combinations of alternatives",
                                                      group->path.Text(), kCombinationsMax)});
    }
    if (error_) return;
  }
  if (!left_out) return;
  if (out.size() == before) return Fail(*std::move(left_out));
  builder_.Loosen("an alternative of anyOf");
}

ExprRef SchemaCompiler::Leaf(const SchemaNode& node) {
  if (error_) return Never();
  if (node.values) return Values(node);
  std::vector<ExprRef> kinds;
  AddLiterals(node, kinds);
  if ((node.types & kString) != 0) kinds.push_back(String(node));
  if ((node.types & (kInteger | kFraction)) != 0) kinds.push_back(Number(node));
  if ((node.types & kObject) != 0) kinds.push_back(Object(node));
  if ((node.types & kArray) != 0) kinds.push_back(Array(node));
  return Choice(std::move(kinds));
}

void SchemaCompiler::AddLiterals(const SchemaNode& node, std::vector<ExprRef>& kinds) const {
  const auto add = [&](const Json& value, std::string_view text) {
    if ((TypeOf(value) & node.types) != 0 && !node.Excludes(value)) kinds.push_back(Literal(text));
  };
  add(nullptr, style_.null_text);
  add(true, style_.true_text);
  add(false, style_.false_text);
}

ExprRef SchemaCompiler::Values(const SchemaNode& node) {
  std::vector<ExprRef> values;
  for (const Json* value : AllowedValues(node)) values.push_back(JsonValueOf(*value, style_));
  return Choice(std::move(values));
}

JsonValues SchemaCompiler::AllowedValues(const SchemaNode& node) {
  JsonValues values;
  std::optional<Dfa> text;  // what strings must be
  for (const Json* at : *node.values) {
    const Json& value = *at;
    if (!MaySatisfy(value, node)) continue;
    const bool ruled = (value.is_object() && (!node.objects.empty() || !node.required.empty() ||
                                              node.min_properties > 0 || node.max_properties)) ||
                       (value.is_array() && (!node.arrays.empty() || node.items.min > 0 || node.items.max));
    if (ruled) {
      Fail({api::ErrorCode::kUnsupported, fmt::format("{}: the keyword \"enum\" is not supported together "
                                                      "with other keywords for the same objects or arrays",
                                                      node.path.Text())});
    }
    if (value.is_string() && node.HasTextRules()) {
      if (!text) text = Checked(BuildDfa(*RuledText(node)), Dfa{}, node.path);
      if (error_) return {};
      const std::string written = api::DumpJson(value);
      if (!Matches(*text, std::string_view(written).substr(1, written.size() - 2))) continue;
    }
    values.push_back(at);
  }
  return values;
}

bool SchemaCompiler::MaySatisfy(const Json& value, const SchemaNode& node) {
  CountWork(4 + (value.is_string() ? value.get_ref<const std::string&>().size() / 8 : 0));
  if ((TypeOf(value) & node.types) == 0 || node.Excludes(value)) return false;
  if (value.is_number()) {
    const std::string text = PlainDecimal(value);
    return node.bounds.Contain(value) && std::ranges::all_of(node.steps, [&](const DecimalStep& step) {
             return Matches(Checked(BuildDfa(*MultiplesOf(step)), Dfa{}, node.path), text);
           });
  }
  if (value.is_string()) return Within(CodePointCount(value.get_ref<const std::string&>()), node.lengths);
  return true;
}

ExprRef SchemaCompiler::Pattern(const SchemaNode::Text& pattern) {
  bool loosened = false;
  auto expr = Regex(pattern.text, Anchoring::kSearch, JsonCharacter, pattern.negated ? nullptr : &loosened);
  // One that is too large would else be found with the grammar as a whole.
  if (loosens_ && (!expr || !BuildDfa(**expr))) {
    builder_.Loosen("pattern");
    return pattern.negated ? Never() : Repeat(JsonCharacter(CodePoints::All()), 0, std::nullopt);
  }
  if (loosened) builder_.Loosen("look-around");
  return Checked(std::move(expr), Never(), pattern.path.Member("pattern"));
}

ExprRef SchemaCompiler::RuledText(const SchemaNode& node) {
  std::vector<ExprRef> must, must_not;
  for (const auto& pattern : node.patterns) (pattern.negated ? must_not : must).push_back(Pattern(pattern));
  for (const auto& format : node.formats)
    must.push_back(Checked(Regex(*PatternOfFormat(format.text), Anchoring::kWhole, JsonCharacter), Never()));
  for (const Json* value : node.excluded) {
    if (!value->is_string()) continue;
    const std::string text = api::DumpJson(*value);
    must_not.push_back(Literal(std::string_view(text).substr(1, text.size() - 2)));
  }
  if (must.empty()) must.push_back(Repeat(JsonCharacter(CodePoints::All()), 0, std::nullopt));
  if (must.size() == 1 && must_not.empty()) return must[0];
  Dfa all = Checked(BuildDfa(*must[0]), Dfa{}, node.path);
  const auto restrict = [&](const ExprRef& expr, auto combine) {
    if (error_) return;
    const Dfa next = Checked(BuildDfa(*expr), Dfa{}, node.path);
    if (!error_) all = Checked(combine(all, next), Dfa{}, node.path);
  };
  for (size_t i = 1; i < must.size(); ++i) restrict(must[i], Intersect);
  for (const ExprRef& expr : must_not) restrict(expr, Subtract);
  return error_ ? Never() : Automaton(std::make_shared<const Dfa>(std::move(all)));
}

ExprRef SchemaCompiler::GrammarString(const SchemaNode& node) {
  const Json& grammar = *node.grammars[0].schema;
  const auto& definition = grammar["definition"].get_ref<const std::string&>();
  const auto compile = [&](GrammarBuilder& builder) -> api::Result<ExprRef> {
    if (grammar["syntax"] == "lark") return Lark(definition, builder, JsonCharacter);
    return Regex(definition, Anchoring::kWhole, JsonCharacter, nullptr, Dot::kNoLineFeed);
  };
  if (loosens_) {
    // One that cannot be compiled would else be found with the answer's grammar as a whole.
    GrammarBuilder alone;
    const auto expr = compile(alone);
    if (!expr || !CompileGrammar(*expr, alone)) {
      builder_.Loosen(kGrammarKeyword);
      return JsonString();
    }
  }
  const ExprRef text = Checked(compile(builder_), Never(), node.grammars[0].path);
  return Sequence({Literal("\""), text, Literal("\"")});
}

ExprRef SchemaCompiler::String(const SchemaNode& node, bool one_spelling) {
  const Lengths& lengths = node.lengths;
  if (!node.grammars.empty()) {
    const bool alone = node.grammars.size() == 1 && !node.HasTextRules() && lengths.min == 0 && !lengths.max;
    if (alone && !one_spelling) return GrammarString(node);
    Fail({api::ErrorCode::kUnsupported,
          fmt::format("{}: \"{}\" is not supported together with other rules of a string",
                      node.grammars[0].path.Text(), kGrammarKeyword)});
    return Never();
  }
  if (lengths.max && *lengths.max < lengths.min) return Never();
  const uint32_t counted = std::max(lengths.min, lengths.max.value_or(0));
  if (counted > (one_spelling ? kDistinctCharactersMax : kCharactersMax)) {
    Fail(
        {api::ErrorCode::kUnsupported, fmt::format("{}: \"{}\" above {} is not supported{}", node.path.Text(),
                                                   lengths.min == counted ? "minLength" : "maxLength",
                                                   one_spelling ? kDistinctCharactersMax : kCharactersMax,
                                                   one_spelling ? " for names and distinct items" : "")});
    return Never();
  }
  const bool counts = lengths.min > 0 || lengths.max;
  const auto quoted = [](ExprRef text) { return Sequence({Literal("\""), std::move(text), Literal("\"")}); };
  const auto whole = [&] {
    if (node.HasTextRules()) return quoted(RuledText(node));
    return one_spelling ? PlainJsonString() : JsonString();
  };
  if (!counts) return whole();
  if (one_spelling) {
    ExprRef many = quoted(Repeat(JsonCharacter(CodePoints::All()), lengths.min, lengths.max));
    if (!node.HasTextRules()) return many;
    const Dfa text = Checked(BuildDfa(*whole()), Dfa{}, node.path);
    if (error_) return Never();
    const Dfa length = Checked(BuildDfa(*many), Dfa{}, node.path);
    if (error_) return Never();
    return Automaton(std::make_shared<const Dfa>(Checked(Intersect(text, length), Dfa{}, node.path)));
  }
  const auto declare = [&] {
    const uint32_t rule = builder_.Declare(RuleKind::kCountedText, lengths);
    builder_.Define(rule, whole());
    return Call(rule);
  };
  if (node.HasTextRules()) return declare();
  ExprRef& shared = counted_strings_[{lengths.min, lengths.max.value_or(UINT32_MAX)}];
  if (shared == nullptr) shared = declare();
  return shared;
}

ExprRef SchemaCompiler::Number(const SchemaNode& node) {
  const bool integer = (node.types & kFraction) == 0;
  ExprRef within = NumberWithin(node.bounds, integer ? NumberKind::kInteger : NumberKind::kAny);
  const auto is_number = [](const Json* value) { return value->is_number(); };
  if (IsNever(within) || (node.steps.empty() && std::ranges::none_of(node.excluded, is_number)))
    return within;
  Dfa all = Checked(BuildDfa(*within), Dfa{}, node.path);
  const auto restrict = [&](const ExprRef& expr, auto combine) {
    if (error_) return;
    const Dfa next = Checked(BuildDfa(*expr), Dfa{}, node.path);
    if (!error_) all = Checked(combine(all, next), Dfa{}, node.path);
  };
  for (const DecimalStep& step : node.steps) restrict(MultiplesOf(step), Intersect);
  for (const Json* value : node.excluded) {
    if (!is_number(value)) continue;
    NumberBounds only;
    only.Raise(NumberBounds::BoundOf(*value));
    only.Lower(NumberBounds::BoundOf(*value));
    restrict(NumberWithin(only, NumberKind::kAny), Subtract);
  }
  return error_ ? Never() : Automaton(std::make_shared<const Dfa>(std::move(all)));
}

api::Result<ExprRef> JsonSchema(const Json& schema, GrammarBuilder& builder, const JsonStyle& style,
                                Enforcement enforcement) {
  return SchemaCompiler(schema, builder, style, enforcement).Run();
}

api::Result<ExprRef> PythonArguments(const Json& schema, GrammarBuilder& builder, Enforcement enforcement) {
  return SchemaCompiler(schema, builder, kPythonStyle, enforcement).RunAsArguments();
}

api::Result<ExprRef> TaggedArguments(const Json& schema, GrammarBuilder& builder, const ArgumentTags& tags,
                                     Enforcement enforcement) {
  return SchemaCompiler(schema, builder, {}, enforcement).RunAsTaggedArguments(tags);
}

}  // namespace quire::runner::constraint
