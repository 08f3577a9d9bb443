#include "runner/constraint/schema_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/utf8.h"
#include "api/json/read.h"
#include "runner/constraint/code_points.h"
#include "runner/constraint/formats.h"
#include "runner/constraint/regex.h"
#include "runner/constraint/schema.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

using api::Json;

constexpr int kSchemaDepthMax = 96;       // schemas nested in each other
constexpr size_t kCombinationsMax = 512;  // of alternatives
constexpr size_t kSchemaEntriesMax = 20'000;
constexpr uint32_t kSchemaRulesMax = 20'000;

uint32_t CodePointCount(const std::string& text) { return static_cast<uint32_t>(api::CountCodePoints(text)); }

bool Within(uint32_t count, const Lengths& lengths) {
  return count >= lengths.min && (!lengths.max || count <= *lengths.max);
}

// Units of work to copy it, of some 8 bytes each.
size_t SizeOf(const SchemaNode& node) {
  return 64 + node.merged.size() * 8 + node.objects.size() * 12 + node.arrays.size() * 8 +
         node.alternatives.size() * 4 + (node.patterns.size() + node.formats.size()) * 4 +
         node.property_names.size() * 4;
}

bool Apart(const Lengths& a, const Lengths& b) {
  return (a.max && *a.max < b.min) || (b.max && *b.max < a.min);
}

bool Apart(const NumberBounds& a, const NumberBounds& b) {
  const auto below = [](const NumberBounds& low, const NumberBounds& high) {
    if (!low.max || !high.min) return false;
    if (low.max->value != high.min->value) return low.max->value < high.min->value;
    return low.max->exclusive || high.min->exclusive;
  };
  return below(a, b) || below(b, a);
}

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
  if (error_) return Never();
  const auto [found, added] = entries_.try_emplace(std::move(key));
  Entry& entry = found->second;
  if (!added) {
    if (entry.done) return entry.expr;
    if (!entry.rule) entry.rule = builder_.Declare();
    return Call(*entry.rule);
  }
  if (++depth_ > kSchemaDepthMax || entries_.size() > kSchemaEntriesMax ||
      builder_.size() > kSchemaRulesMax) {
    Fail({api::ErrorCode::kUnsupported, fmt::format("{}: the schema is too large or nested too deeply",
                                                    refs.empty() ? "#" : refs[0].path.Text())});
    return Never();
  }
  entry.expr = Compile(refs);
  --depth_;
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
  const bool only_alternatives = node.assertions == 0 && node.alternatives.size() == 1;
  // Exclusive alternatives are checked by Expand().
  if (only_alternatives && !node.alternatives[0]->exclusive) {
    std::vector<ExprRef> choices;
    for (const SchemaRef& choice : node.alternatives[0]->choices) choices.push_back(Value({choice}));
    return Choice(std::move(choices));
  }
  std::vector<SchemaNode> nodes;
  Expand(std::move(node), nodes);
  std::vector<ExprRef> leaves;
  for (const SchemaNode& leaf : nodes) leaves.push_back(Leaf(leaf));
  return error_ ? Never() : Choice(std::move(leaves));
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
  std::vector<size_t> begins;
  for (const SchemaRef& choice : group->choices) {
    begins.push_back(out.size());
    CountWork(SizeOf(node));
    SchemaNode merged = node;
    if (auto done = reader_.Merge(merged, choice, group->within); !done) Fail(std::move(done.error()));
    Expand(std::move(merged), out);
    if (out.size() > kCombinationsMax) {
      Fail({api::ErrorCode::kUnsupported, fmt::format("{}: more than {} combinations of alternatives",
                                                      group->path.Text(), kCombinationsMax)});
    }
    if (error_) return;
  }
  if (group->exclusive) RefuseOverlaps(out, begins, group->path);
}

void SchemaCompiler::RefuseOverlaps(std::span<const SchemaNode> nodes, const std::vector<size_t>& begins,
                                    const SchemaPath& path) {
  const auto group = [&](size_t i) {
    const size_t end = i + 1 < begins.size() ? begins[i + 1] : nodes.size();
    return nodes.subspan(begins[i], end - begins[i]);
  };
  for (size_t i = 0; i < begins.size(); ++i) {
    for (size_t j = i + 1; j < begins.size(); ++j) {
      for (const SchemaNode& a : group(i)) {
        for (const SchemaNode& b : group(j)) {
          if (error_ || Disjoint(a, b)) continue;
          Fail({api::ErrorCode::kUnsupported,
                fmt::format("{}: the keyword \"oneOf\" is not supported when alternatives {} and {} can both "
                            "match (use \"anyOf\")",
                            path.Text(), i, j)});
        }
      }
    }
  }
}

ExprRef SchemaCompiler::Leaf(const SchemaNode& node) {
  if (error_) return Never();
  if (node.values) return Values(node);
  std::vector<ExprRef> kinds;
  if ((node.types & kNull) != 0) kinds.push_back(Literal(style_.null_text));
  if ((node.types & kBoolean) != 0)
    kinds.push_back(Choice({Literal(style_.true_text), Literal(style_.false_text)}));
  if ((node.types & kString) != 0) kinds.push_back(String(node));
  if ((node.types & (kInteger | kFraction)) != 0) kinds.push_back(Number(node));
  if ((node.types & kObject) != 0) kinds.push_back(Object(node));
  if ((node.types & kArray) != 0) kinds.push_back(Array(node));
  return Choice(std::move(kinds));
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
      if (!text) text = Checked(BuildDfa(*String(node)), Dfa{}, node.path);
      if (error_) return {};
      if (!Matches(*text, api::DumpJson(value))) continue;
    }
    values.push_back(at);
  }
  return values;
}

bool SchemaCompiler::MaySatisfy(const Json& value, const SchemaNode& node) {
  CountWork(4 + (value.is_string() ? value.get_ref<const std::string&>().size() / 8 : 0));
  if ((TypeOf(value) & node.types) == 0) return false;
  if (value.is_number()) return node.bounds.Contain(value);
  if (value.is_string()) return Within(CodePointCount(value.get_ref<const std::string&>()), node.lengths);
  return true;
}

ExprRef SchemaCompiler::String(const SchemaNode& node, bool one_spelling) {
  if (node.lengths.min > kCharactersMax) {
    Fail({api::ErrorCode::kUnsupported,
          fmt::format("{}: \"minLength\" is greater than {}", node.path.Text(), kCharactersMax)});
    return Never();
  }
  if (!node.HasTextRules()) {
    if (node.lengths.max && *node.lengths.max < node.lengths.min) return Never();
    return one_spelling ? PlainJsonString(node.lengths) : JsonString(node.lengths);
  }
  std::vector<ExprRef> rules;
  rules.reserve(node.patterns.size() + node.formats.size() + 1);
  for (const auto& pattern : node.patterns) {
    rules.push_back(Checked(Regex(pattern.text, Anchoring::kSearch, JsonCharacter), Never(),
                            pattern.path.Member("pattern")));
  }
  for (const auto& format : node.formats) {
    const auto pattern = PatternOfFormat(format.text);
    if (!pattern) {
      Fail({api::ErrorCode::kUnsupported,
            fmt::format("{}: the format \"{}\" is not supported", format.path.Text(), format.text)});
      return Never();
    }
    rules.push_back(Checked(Regex(*pattern, Anchoring::kWhole, JsonCharacter), Never()));
  }
  if (node.lengths.min > 0 || node.lengths.max) {
    std::optional<uint32_t> max = node.lengths.max;
    if (max) max = std::min(*max, kCharactersMax);
    rules.push_back(Repeat(JsonCharacter(CodePoints::All()), node.lengths.min, max));
  }
  ExprRef content = rules[0];
  if (rules.size() > 1) {
    Dfa all = Checked(BuildDfa(*rules[0]), Dfa{}, node.path);
    for (size_t i = 1; i < rules.size() && !error_; ++i) {
      const Dfa next = Checked(BuildDfa(*rules[i]), Dfa{}, node.path);
      if (!error_) all = Checked(Intersect(all, next), Dfa{}, node.path);
    }
    if (error_) return Never();
    content = Automaton(std::make_shared<const Dfa>(std::move(all)));
  }
  return Sequence({Literal("\""), content, Literal("\"")});
}

ExprRef SchemaCompiler::Number(const SchemaNode& node) {
  const bool integer = (node.types & kFraction) == 0;
  return NumberWithin(node.bounds, integer ? NumberKind::kInteger : NumberKind::kAny);
}

// ---- what excludes what ----

bool SchemaCompiler::Disjoint(const SchemaNode& a, const SchemaNode& b) {
  CountWork(8);
  const Types common = a.types & b.types;
  if (common == 0) return true;
  if (a.values && b.values) {
    const SortedValues others(*b.values);
    return std::ranges::none_of(*a.values, [&](const Json* value) {
      return others.Contains(*value) && MaySatisfy(*value, a) && MaySatisfy(*value, b);
    });
  }
  if (a.values || b.values) {
    const auto& [some, other] = a.values ? std::tie(a, b) : std::tie(b, a);
    return std::ranges::none_of(*some.values,
                                [&](const Json* v) { return MaySatisfy(*v, some) && MaySatisfy(*v, other); });
  }
  return DisjointTypes(a, b, common);
}

bool SchemaCompiler::DisjointTypes(const SchemaNode& a, const SchemaNode& b, Types common) {
  if ((common & (kNull | kBoolean)) != 0) return false;
  if ((common & (kInteger | kFraction)) != 0 && !Apart(a.bounds, b.bounds)) return false;
  if ((common & kString) != 0 && !Apart(a.lengths, b.lengths)) return false;
  if ((common & kArray) != 0 && !Apart(a.items, b.items)) return false;
  return (common & kObject) == 0 || DisjointObjects(a, b);
}

bool SchemaCompiler::DisjointObjects(const SchemaNode& a, const SchemaNode& b) {
  const auto property = [&](const SchemaNode& node, std::string_view name) {
    SchemaNode merged;
    for (const SchemaRef& ref : PropertyRefs(node, name)) {
      if (auto done = reader_.Merge(merged, ref); !done) Fail(std::move(done.error()));
    }
    return merged;
  };
  const auto tells_apart = [&](const SchemaNode& one, const SchemaNode& other) {
    return std::ranges::any_of(one.required.names(), [&](std::string_view name) {
      CountWork(64);
      const SchemaNode theirs = property(other, name);
      if (theirs.types == 0) return true;  // required here, forbidden there
      if (!other.required.Contains(name)) return false;
      const SchemaNode ours = property(one, name);
      if ((ours.types & theirs.types) == 0) return true;
      return ours.values && theirs.values && Disjoint(ours, theirs);
    });
  };
  return tells_apart(a, b) || tells_apart(b, a);
}

api::Result<ExprRef> JsonSchema(const Json& schema, GrammarBuilder& builder, const JsonStyle& style) {
  return SchemaCompiler(schema, builder, style).Run();
}

api::Result<ExprRef> PythonArguments(const Json& schema, GrammarBuilder& builder) {
  return SchemaCompiler(schema, builder, kPythonStyle).RunAsArguments();
}

api::Result<ExprRef> TaggedArguments(const Json& schema, GrammarBuilder& builder, const ArgumentTags& tags) {
  return SchemaCompiler(schema, builder).RunAsTaggedArguments(tags);
}

}  // namespace quire::runner::constraint
