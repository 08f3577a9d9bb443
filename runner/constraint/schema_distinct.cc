// Arrays of `uniqueItems`.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/read.h"
#include "runner/constraint/schema_compiler.h"

namespace quire::runner::constraint {
namespace {

using api::Json;

// Equal values have equal texts: members sorted by name, numbers as decimals.
std::string PlainText(const Json& value, const JsonStyle& style) {
  if (value.is_number()) return PlainDecimal(value);
  std::vector<std::string> inner;
  if (value.is_array()) {
    for (const Json& item : value) inner.push_back(PlainText(item, style));
    return fmt::format("[{}]", fmt::join(inner, ","));
  }
  if (value.is_object()) {
    for (const auto& [name, member] : value.get_ref<const Json::object_t&>()) {
      inner.push_back(api::DumpJson(Json(name)) + ":" + PlainText(member, style));
    }
    std::ranges::sort(inner);
    return fmt::format("{{{}}}", fmt::join(inner, ","));
  }
  if (value.is_null()) return std::string(style.null_text);
  if (value.is_boolean()) return std::string(value.get<bool>() ? style.true_text : style.false_text);
  return api::DumpJson(value);
}

std::string UnsupportedItems(const SchemaPath& path, std::string_view why) {
  return fmt::format("{}: the keyword \"uniqueItems\" is not supported {}", path.Text(), why);
}

}  // namespace

ExprRef SchemaCompiler::DistinctArray(const SchemaNode& node) {
  const bool prefix = std::ranges::any_of(
      node.arrays, [](const ArrayRules& rules) { return rules.prefix && !rules.prefix->empty(); });
  if (prefix) {
    Fail({api::ErrorCode::kUnsupported, UnsupportedItems(node.unique_path, "together with \"prefixItems\"")});
    return Never();
  }
  const ExprRef item = DistinctItem(node);
  if (error_) return Never();
  Dfa texts = Checked(BuildDfa(*item), Dfa{}, node.path);
  if (error_ || CountTexts(texts)[0] < node.items.min) return Never();
  const uint32_t rule = builder_.Declare(RuleKind::kDistinctItem);
  builder_.Define(rule, Automaton(std::make_shared<const Dfa>(std::move(texts))));
  return ArrayOf(node, {Call(rule)}, node.items, RuleKind::kDistinctList);
}

ExprRef SchemaCompiler::DistinctItem(const SchemaNode& node) {
  SchemaRefs refs;
  for (const ArrayRules& rules : node.arrays) {
    if (rules.rest) refs.push_back(*rules.rest);
  }
  return OneSpelling(refs, [&](const SchemaNode& leaf) {
    if (leaf.values || (leaf.types & (kObject | kArray)) == 0) return;
    Fail({api::ErrorCode::kUnsupported,
          UnsupportedItems(node.unique_path, "when items can be objects or arrays that no \"enum\" lists")});
  });
}

ExprRef SchemaCompiler::OneSpelling(const SchemaRefs& refs,
                                    const std::function<void(const SchemaNode&)>& check) {
  SchemaNode merged;
  for (const SchemaRef& ref : refs) {
    if (auto done = reader_.Merge(merged, ref); !done) Fail(std::move(done.error()));
  }
  std::vector<SchemaNode> nodes;
  Expand(std::move(merged), nodes);
  std::vector<ExprRef> leaves;
  for (const SchemaNode& leaf : nodes) {
    if (check) check(leaf);
    if (error_) return Never();
    leaves.push_back(DistinctLeaf(leaf));
  }
  return error_ ? Never() : Choice(std::move(leaves));
}

ExprRef SchemaCompiler::DistinctLeaf(const SchemaNode& leaf) {
  std::vector<ExprRef> kinds;
  if (leaf.values) {
    for (const Json* value : AllowedValues(leaf)) kinds.push_back(Literal(PlainText(*value, style_)));
    return Choice(std::move(kinds));
  }
  AddLiterals(leaf, kinds);
  if ((leaf.types & kString) != 0) kinds.push_back(String(leaf, /*one_spelling=*/true));
  if ((leaf.types & (kInteger | kFraction)) != 0) kinds.push_back(DistinctNumber(leaf));
  return Choice(std::move(kinds));
}

ExprRef SchemaCompiler::DistinctNumber(const SchemaNode& leaf) {
  const bool ruled = !leaf.steps.empty() ||
                     std::ranges::any_of(leaf.excluded, [](const Json* value) { return value->is_number(); });
  const bool integer = (leaf.types & kFraction) == 0;
  Dfa numbers = Checked(DistinctNumberWithin(leaf.bounds, integer ? NumberKind::kInteger : NumberKind::kAny),
                        Dfa{}, leaf.path.Member("minimum, maximum"));
  if (ruled && !error_) {
    const Dfa rules = Checked(BuildDfa(*Number(leaf)), Dfa{}, leaf.path);
    if (!error_) numbers = Checked(Intersect(numbers, rules), Dfa{}, leaf.path);
  }
  return error_ ? Never() : Automaton(std::make_shared<const Dfa>(std::move(numbers)));
}

}  // namespace quire::runner::constraint
