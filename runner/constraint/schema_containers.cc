// Objects and arrays of a schema.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ascii.h"
#include "api/json/read.h"
#include "runner/constraint/code_points.h"
#include "runner/constraint/schema_compiler.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

using api::Json;

constexpr size_t kPlacesMax = 100'000;  // of the members of an object: properties times counts
constexpr uint32_t kDistinctItemsMax = 10'000;
constexpr uint32_t kInlineItemsMax = 8;  // longer arrays call their items

// Keys outside `properties`: one way to write each, so that none of them can be a declared one in disguise.
ExprRef FreeKey() {
  const CodePoints plain = CodePoints({{0x20, 0x10FFFF}});
  return Sequence({Literal("\""), Repeat(JsonCharacter(plain), 0, std::nullopt), Literal("\"")});
}

bool IsIdentifier(std::string_view name) {
  return !name.empty() && (name[0] < '0' || name[0] > '9') &&
         std::ranges::all_of(name, [](char c) { return api::IsAsciiAlnum(c) || c == '_'; });
}

// The members of an object as a graph. A place is how many properties were passed by and how many members
// were written, counted up to `counts`.
class Members {
 public:
  // `max`: no member may come after this many; without it counts stay at `counts`.
  Members(uint32_t properties, uint32_t min, std::optional<uint32_t> max, ExprRef separator, ExprRef end)
      : separator_(std::move(separator)),
        end_(std::move(end)),
        min_(min),
        max_(max),
        counts_(max ? *max : std::max(min, 1U)) {
    graph_.nodes = 2;
    declared_ = Places(properties + 1);
    keys_ = Places(properties);
    extra_ = Places(1);
    graph_.edges.push_back({0, declared_, nullptr});
  }

  static uint64_t CountPlaces(uint32_t properties, uint32_t min, std::optional<uint32_t> max) {
    return (uint64_t{properties} * 2 + 2) * (uint64_t{max ? *max : std::max(min, 1U)} + 1);
  }

  void Property(uint32_t index, const ExprRef& member, bool optional) {
    for (uint32_t count = 0; count <= counts_; ++count) {
      const uint32_t from = declared_ + At(index, count);
      if (optional) Edge(from, declared_ + At(index + 1, count), nullptr);
      if (IsNever(member) || Full(count)) continue;
      const uint32_t to = Next(count);
      Edge(from, keys_ + At(index, to), count == 0 ? nullptr : separator_);
    }
    if (IsNever(member)) return;
    for (uint32_t count = 1; count <= counts_; ++count) {
      Edge(keys_ + At(index, count), declared_ + At(index + 1, count), member);
    }
  }

  // Members beyond the declared ones. They may repeat a key, so all of them count as one towards the least.
  void Additional(uint32_t properties, const ExprRef& member) {
    if (IsNever(member)) return;
    for (uint32_t count = 0; count <= counts_; ++count) {
      if (Full(count)) continue;
      const ExprRef next = count == 0 ? member : Sequence({separator_, member});
      if (count + 1 >= min_) Edge(declared_ + At(properties, count), extra_ + Next(count), next);
      if (count > 0) Edge(extra_ + count, extra_ + Next(count), next);
    }
  }

  ExprRef Build(uint32_t properties) {
    for (uint32_t count = 0; count <= counts_; ++count) {
      if (count >= min_) Edge(declared_ + At(properties, count), 1, count == 0 ? nullptr : end_);
      if (count > 0) Edge(extra_ + count, 1, end_);
    }
    return std::make_shared<const Expr>(Expr{std::move(graph_)});
  }

 private:
  uint32_t Places(uint32_t rows) {
    const uint32_t first = graph_.nodes;
    graph_.nodes += rows * (counts_ + 1);
    return first;
  }
  uint32_t At(uint32_t row, uint32_t count) const { return row * (counts_ + 1) + count; }
  bool Full(uint32_t count) const { return max_ && count >= *max_; }
  uint32_t Next(uint32_t count) const { return std::min(count + 1, counts_); }
  void Edge(uint32_t from, uint32_t to, ExprRef label) {
    graph_.edges.push_back({from, to, std::move(label)});
  }

  const ExprRef separator_;
  const ExprRef end_;  // behind the last
  const uint32_t min_;
  const std::optional<uint32_t> max_;
  const uint32_t counts_;
  Expr::Graph graph_;
  uint32_t declared_ = 0;  // [properties + 1, counts]
  uint32_t keys_ = 0;      // [properties, counts] behind the separator; counts include the member to come
  uint32_t extra_ = 0;     // [counts] after a member that is not declared
};

}  // namespace

const Dfa& SchemaCompiler::NamePattern(const PatternRule& rule) {
  const auto [found, added] = name_patterns_.try_emplace(rule.pattern);
  if (added) {
    const ExprRef pattern = Pattern({.text = rule.pattern, .path = rule.value.path});
    found->second =
        Checked(BuildDfa(*Sequence({Literal("\""), pattern, Literal("\"")})), Dfa{}, rule.value.path);
  }
  return found->second;
}

SchemaRefs SchemaCompiler::PropertyRefs(const SchemaNode& node, std::string_view name) {
  static const Json nothing = false;
  SchemaRefs refs;
  CountWork(4 * (1 + node.objects.size()));
  const std::string text = api::DumpJson(Json(name));
  for (const ObjectRules& rules : node.objects) {
    const size_t before = refs.size();
    const auto declared = rules.by_name ? rules.by_name->find(name) : MemberIndex::const_iterator();
    if (rules.by_name && declared != rules.by_name->end()) {
      refs.push_back({declared->second, rules.path.Member("properties").Member(declared->first)});
    }
    for (size_t i = 0; rules.patterns && i < rules.patterns->size() && !error_; ++i) {
      const PatternRule& rule = (*rules.patterns)[i];
      const Dfa& names = NamePattern(rule);
      CountWork(text.size());
      if (!error_ && Matches(names, text)) refs.push_back(rule.value);
    }
    if (refs.size() == before && rules.additional) refs.push_back(*rules.additional);
  }
  if (node.absent.Contains(name)) refs.push_back({&nothing, node.path});
  return refs;
}

SchemaRefs SchemaCompiler::AdditionalRefs(const SchemaNode& node,
                                          std::span<const PatternRule* const> matched) {
  SchemaRefs refs;
  for (const ObjectRules& rules : node.objects) {
    const size_t before = refs.size();
    for (size_t i = 0; rules.patterns && i < rules.patterns->size(); ++i) {
      const PatternRule& rule = (*rules.patterns)[i];
      if (std::ranges::find(matched, &rule) != matched.end()) refs.push_back(rule.value);
    }
    if (refs.size() == before && rules.additional) refs.push_back(*rules.additional);
  }
  if (node.unevaluated && matched.empty()) refs.push_back(*node.unevaluated);
  return refs;
}

// Objects whose properties are named, or patterns of their names, have no others unless a schema speaks of
// others, or there are too few.
bool SchemaCompiler::IsClosed(const SchemaNode& node, size_t names) {
  const auto has_patterns = [](const ObjectRules& rules) { return rules.patterns != nullptr; };
  const auto has_names = [](const ObjectRules& rules) { return rules.properties != nullptr; };
  const auto has_additional = [](const ObjectRules& rules) { return rules.additional.has_value(); };
  if (node.unevaluated || std::ranges::any_of(node.objects, has_additional)) return false;
  return std::ranges::any_of(node.objects, has_patterns) ||
         (node.min_properties <= names && std::ranges::any_of(node.objects, has_names));
}

NameList SchemaCompiler::PropertyNames(const SchemaNode& node) {
  NameList names;
  for (const ObjectRules& rules : node.objects) {
    if (rules.properties == nullptr) continue;
    CountWork(4 * rules.properties->size());
    for (const auto& [name, schema] : rules.properties->get_ref<const Json::object_t&>()) names.Add(name);
  }
  CountWork(4 * node.required.names().size());
  for (const std::string_view name : node.required.names()) names.Add(name);
  return names;
}

std::vector<Dfa> SchemaCompiler::NameRules(const SchemaNode& node) {
  std::vector<Dfa> rules;
  for (const SchemaRef& ref : node.property_names) {
    rules.push_back(Checked(BuildDfa(*OneSpelling({ref})), Dfa{}, ref.path));
    if (error_) return {};
  }
  return rules;
}

Dfa SchemaCompiler::AdditionalNames(const std::vector<Dfa>& name_rules,
                                    std::span<const std::string_view> names, const SchemaPath& path) {
  Dfa keys = Checked(BuildDfa(*FreeKey()), Dfa{});
  std::vector<ExprRef> declared;
  declared.reserve(names.size());
  for (const std::string_view name : names) declared.push_back(JsonStringOf(name));
  const Dfa taken = Checked(BuildDfa(*Choice(std::move(declared))), Dfa{}, path);
  if (!error_) keys = Checked(Subtract(keys, taken), Dfa{}, path);
  for (const Dfa& allowed : name_rules) {
    if (!error_) keys = Checked(Intersect(keys, allowed), Dfa{}, path);
  }
  return keys;
}

// A name may match several patterns: of a few, every combination has its own names and its own values. Of
// more than a few the names match one at most.
ExprRef SchemaCompiler::AdditionalMembers(const SchemaNode& node, const std::vector<Dfa>& name_rules,
                                          std::span<const std::string_view> names) {
  constexpr size_t kCombinedMax = 4;
  std::vector<const PatternRule*> patterns;
  for (const ObjectRules& rules : node.objects) {
    for (size_t i = 0; rules.patterns && i < rules.patterns->size(); ++i)
      patterns.push_back(&(*rules.patterns)[i]);
  }
  std::vector<std::vector<const PatternRule*>> combinations = {{}};
  for (const PatternRule* pattern : patterns) {
    const size_t before = patterns.size() > kCombinedMax ? 1 : combinations.size();
    for (size_t i = 0; i < before; ++i) {
      combinations.push_back(combinations[i]);
      combinations.back().push_back(pattern);
    }
  }
  const bool any_name = names.empty() && node.absent.empty() && name_rules.empty() && patterns.empty();
  std::vector<std::string_view> taken(names.begin(), names.end());
  taken.insert(taken.end(), node.absent.names().begin(), node.absent.names().end());
  std::vector<ExprRef> members;
  for (const auto& matched : combinations) {
    if (matched.empty() && IsClosed(node, names.size())) continue;
    const ExprRef value = Value(AdditionalRefs(node, matched));
    if (error_) return Never();
    if (IsNever(value)) continue;
    if (any_name) return Member(FreeKey(), value, style_);
    Dfa keys = AdditionalNames(name_rules, taken, node.path);
    for (const PatternRule* pattern : patterns) {
      if (error_) return Never();
      const Dfa& matching = NamePattern(*pattern);
      if (error_) return Never();
      const bool in = std::ranges::find(matched, pattern) != matched.end();
      keys = Checked(in ? Intersect(keys, matching) : Subtract(keys, matching), Dfa{}, node.path);
    }
    if (error_) return Never();
    if (CountTexts(keys)[0] == 0) continue;
    members.push_back(Member(Automaton(std::make_shared<const Dfa>(std::move(keys))), value, style_));
  }
  return Choice(std::move(members));
}

ExprRef SchemaCompiler::ObjectMembers(const SchemaNode& node) {
  const NameList properties = PropertyNames(node);
  const auto names = properties.names();
  const auto count = static_cast<uint32_t>(names.size());
  if (Members::CountPlaces(count, node.min_properties, node.max_properties) > kPlacesMax) {
    Fail({api::ErrorCode::kUnsupported,
          fmt::format("{}: too many properties for \"minProperties\" or \"maxProperties\"",
                      node.path.Text())});
    return Never();
  }
  CountWork(8 * Members::CountPlaces(count, node.min_properties, node.max_properties));
  const std::vector<Dfa> name_rules = NameRules(node);
  if (error_) return Never();
  const auto allowed = [&name_rules](std::string_view name) {
    const std::string text = api::DumpJson(Json(name));
    CountWork(text.size() * name_rules.size());
    return std::ranges::all_of(name_rules, [&text](const Dfa& rule) { return Matches(rule, text); });
  };
  Members members(count, node.min_properties, node.max_properties, MemberSeparator(style_), Space(style_));
  for (uint32_t i = 0; i < count; ++i) {
    const bool required = node.required.Contains(names[i]);
    const ExprRef value = allowed(names[i]) ? Value(PropertyRefs(node, names[i])) : Never();
    if (required && IsNever(value)) return Never();
    members.Property(i, Member(JsonStringOf(names[i]), value, style_), !required);
  }
  members.Additional(count, AdditionalMembers(node, name_rules, names));
  return members.Build(count);
}

ExprRef SchemaCompiler::Object(const SchemaNode& node) {
  const bool free = node.objects.empty() && node.required.empty() && node.property_names.empty() &&
                    node.min_properties == 0 && !node.max_properties && !node.unevaluated &&
                    node.absent.empty();
  if (free) return Any().object;
  if (node.max_properties && *node.max_properties < node.min_properties) return Never();
  const ExprRef members = ObjectMembers(node);
  if (error_ || IsNever(members)) return Never();
  const uint32_t rule = builder_.Declare();
  builder_.Define(rule, Sequence({Literal("{"), Space(style_), members, Literal("}")}));
  return Call(rule);
}

api::Result<ExprRef> SchemaCompiler::NamedMembers(
    const ExprRef& separator,
    const std::function<api::Result<ExprRef>(std::string_view name, const SchemaRefs& refs)>& member) {
  const auto refuse = [](std::string why) { return api::Fail(api::ErrorCode::kUnsupported, std::move(why)); };
  SchemaNode node;
  if (auto merged = reader_.Merge(node, {&root_, SchemaPath("#")}); !merged)
    return std::unexpected(merged.error());
  const bool plain = node.alternatives.empty() && !node.values && (node.types & kObject) != 0 &&
                     node.property_names.empty() && node.min_properties == 0 && !node.max_properties;
  if (!plain) return refuse("not an object with only named properties");
  const NameList properties = PropertyNames(node);
  const auto names = properties.names();
  const bool patterns =
      std::ranges::any_of(node.objects, [](const ObjectRules& rules) { return rules.patterns != nullptr; });
  if (patterns || (!IsClosed(node, names.size()) && !IsNever(Value(AdditionalRefs(node)))))
    return refuse("an object with additional properties");
  const auto count = static_cast<uint32_t>(names.size());
  Members members(count, 0, std::nullopt, separator, Nothing());
  for (uint32_t i = 0; i < count; ++i) {
    const bool required = node.required.Contains(names[i]);
    auto written = member(names[i], PropertyRefs(node, names[i]));
    if (!written) return written;
    if (required && IsNever(*written)) return refuse("a required property that allows no value");
    members.Property(i, *written, !required);
  }
  if (error_) return std::unexpected(std::move(*error_));
  return members.Build(count);
}

api::Result<ExprRef> SchemaCompiler::RunAsArguments() {
  return NamedMembers(
      Literal(", "), [&](std::string_view name, const SchemaRefs& refs) -> api::Result<ExprRef> {
        if (!IsIdentifier(name)) {
          return api::Fail(api::ErrorCode::kUnsupported, "a property whose name is not an identifier");
        }
        const ExprRef value = Value(refs);
        return IsNever(value) ? value : Sequence({Literal(std::string(name) + "="), value});
      });
}

ExprRef SchemaCompiler::ArrayItem(const SchemaNode& node, size_t position) {
  SchemaRefs refs;
  for (const ArrayRules& rules : node.arrays) {
    if (rules.prefix && position < rules.prefix->size()) {
      refs.push_back((*rules.prefix)[position]);
    } else if (rules.rest) {
      refs.push_back(*rules.rest);
    }
  }
  return Value(std::move(refs));
}

ExprRef SchemaCompiler::Array(const SchemaNode& node) {
  if (!node.unique_path.empty() && node.items.max.value_or(2) > 1) return DistinctArray(node);
  const bool free = node.arrays.empty() && node.items.min == 0 && !node.items.max;
  if (free) return Any().array;
  size_t prefix = 0;
  for (const ArrayRules& rules : node.arrays) {
    if (rules.prefix) prefix = std::max(prefix, rules.prefix->size());
  }
  std::optional<uint32_t> max = node.items.max;
  std::vector<ExprRef> items;
  for (size_t i = 0; i <= prefix && (!max || i < *max); ++i) {
    items.push_back(ArrayItem(node, i));
    if (IsNever(items.back())) max = std::min(max.value_or(UINT32_MAX), static_cast<uint32_t>(i));
  }
  if (error_ || (max && *max < node.items.min)) return Never();
  const uint32_t counted = max ? *max : std::max(node.items.min, static_cast<uint32_t>(prefix));
  if (counted <= kInlineItemsMax) return ArrayOf(node, items, {node.items.min, max}, RuleKind::kText);
  for (ExprRef& item : items) {
    if (IsNever(item) || std::holds_alternative<Expr::Call>(item->form)) continue;
    const uint32_t rule = builder_.Declare();
    builder_.Define(rule, std::exchange(item, Call(rule)));
  }
  return ArrayOf(node, items, {node.items.min, max}, RuleKind::kCountedList);
}

ExprRef SchemaCompiler::ArrayOf(const SchemaNode& node, const std::vector<ExprRef>& items, Lengths count,
                                RuleKind kind) {
  const auto prefix = static_cast<uint32_t>(items.empty() ? 0 : items.size() - 1);
  const Lengths bounds = count;
  if (kind == RuleKind::kCountedList) count = {.min = 0, .max = {}};
  const uint32_t counted = count.max ? *count.max : std::max(count.min, prefix);
  if (kind == RuleKind::kDistinctList && counted > kDistinctItemsMax) {
    Fail({api::ErrorCode::kUnsupported,
          fmt::format("{}: more than {} distinct items", node.path.Text(), kDistinctItemsMax)});
    return Never();
  }
  CountWork(16 * (uint64_t{counted} + 1));
  // Node i + 2: after this many items.
  Expr::Graph graph{.nodes = counted + 4, .edges = {{0, 2, nullptr}}};
  const auto item = [&](uint32_t i) {
    const ExprRef& value = items[std::min<size_t>(i, items.size() - 1)];
    return i == 0 ? value : Sequence({MemberSeparator(style_), value});
  };
  for (uint32_t i = 0; i <= counted; ++i) {
    if (i >= count.min) graph.edges.push_back({i + 2, 1, i == 0 ? nullptr : Space(style_)});
    if (i < counted) graph.edges.push_back({i + 2, i + 3, item(i)});
  }
  if (!count.max) {
    const uint32_t more = counted + 3;
    graph.edges.push_back({counted + 2, more, item(counted)});
    graph.edges.push_back({more, more, item(counted + 1)});
    graph.edges.push_back({more, 1, Space(style_)});
  }
  const uint32_t rule = builder_.Declare(kind, bounds);
  builder_.Define(rule, Sequence({Literal("["), Space(style_),
                                  std::make_shared<const Expr>(Expr{std::move(graph)}), Literal("]")}));
  return Call(rule);
}

}  // namespace quire::runner::constraint
