#include "runner/constraint/rule_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

constexpr int kGroupsNestedMax = 64;
constexpr uint32_t kRepetitionsMax = 2000;  // as llama.cpp
constexpr size_t kRulesMax = 10'000;
constexpr size_t kBytesPerUnit = 64;  // that are skipped

}  // namespace

void RuleReader::Skip(size_t bytes) {
  CountWork(1 + bytes / kBytesPerUnit);
  line_ += static_cast<int>(std::ranges::count(left_.substr(0, bytes), '\n'));
  left_.remove_prefix(std::min(bytes, left_.size()));
}

bool RuleReader::Consume(std::string_view text) {
  if (!Sees(text)) return false;
  Skip(text.size());
  return true;
}

void RuleReader::SetError(api::ErrorCode code, std::string_view what) {
  if (!error_) error_ = api::Error{code, fmt::format("line {}: {}", line_, what), {}};
}

size_t RuleReader::RuleOf(std::string_view name) {
  const auto [entry, made] = numbers_.try_emplace(std::string(name), rules_.size());
  if (made) rules_.push_back({.name = std::string(name), .used_in_line = line_});
  if (rules_.size() > kRulesMax) Unsupported(fmt::format("more than {} rules", kRulesMax));
  return entry->second;
}

void RuleReader::Define(std::string_view name, RuleRef body) {
  if (error_) return;
  const size_t rule = RuleOf(name);
  if (rules_[rule].body != nullptr) return Broken(fmt::format("the rule \"{}\" is defined twice", name));
  rules_[rule].body = std::move(body);
}

api::Result<std::vector<GrammarRule>> RuleReader::Finish() {
  for (const GrammarRule& rule : rules_) {
    if (rule.body != nullptr) continue;
    if (!error_) line_ = rule.used_in_line;
    Broken(fmt::format("the rule \"{}\" is not defined", rule.name));
  }
  if (error_) return std::unexpected(std::move(*error_));
  return std::move(rules_);
}

bool RuleReader::ConsumeBar(bool nested) {
  const std::string_view left = left_;
  const int line = line_;
  SkipSpace(true);
  if (Consume("|")) return true;
  if (!nested) {
    left_ = left;
    line_ = line;
  }
  return false;
}

RuleRef RuleReader::Alternatives(bool nested) {
  auto choice = std::make_unique<RuleNode>(RuleNode{.kind = RuleNode::Kind::kChoice});
  do {
    SkipSpace(nested || lines_after_bar_);
    choice->parts.push_back(Items(nested));
  } while (!AtEnd() && ConsumeBar(nested));
  return choice;
}

RuleRef RuleReader::Items(bool nested) {
  auto sequence = std::make_unique<RuleNode>(RuleNode{.kind = RuleNode::Kind::kSequence});
  constexpr std::string_view kEnds = "|)]\r\n";
  while (!AtEnd() && kEnds.find(Next()) == std::string_view::npos) {
    CountWork(1);
    RuleRef item = Item();
    SkipSpace(nested);
    for (; !AtEnd(); SkipSpace(nested)) {
      uint32_t min = 0;
      std::optional<uint32_t> max;
      if (Consume("+")) {
        min = 1;
      } else if (Consume("?")) {
        max = 1;
      } else if (!Consume("*") && !Counts(min, max)) {
        break;
      }
      item = Repetition(std::move(item), min, max);
    }
    sequence->parts.push_back(std::move(item));
  }
  return sequence;
}

RuleRef RuleReader::Group(std::string_view close) {
  if (++depth_ > kGroupsNestedMax) {
    Unsupported(fmt::format("groups nested more than {} deep", kGroupsNestedMax));
  }
  RuleRef inside = Alternatives(/*nested=*/true);
  --depth_;
  SkipSpace(true);
  if (!Consume(close)) Broken(fmt::format("a group without its \"{}\"", close));
  return inside;
}

std::optional<uint32_t> RuleReader::Number() {
  std::optional<uint32_t> number;
  for (; Next() >= '0' && Next() <= '9'; Skip(1)) {
    number = std::min(number.value_or(0) * 10 + static_cast<uint32_t>(Next() - '0'), kRepetitionsMax + 1);
  }
  return number;
}

uint32_t RuleReader::Hex(int digits) {
  uint32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const char c = Next();
    const char lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<uint32_t>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + static_cast<uint32_t>(lower - 'a' + 10);
    } else {
      Broken("an escape without its hexadecimal digits");
      return 0;
    }
    Skip(1);
  }
  if (value > kCodePointLast || (value >= 0xD800 && value <= 0xDFFF))
    Broken("an escape of no Unicode character");
  return value;
}

RuleRef RuleReader::Repetition(RuleRef item, uint32_t min, std::optional<uint32_t> max) {
  if (max && *max < min) Broken("a repetition whose maximum is below its minimum");
  if (std::max(min, max.value_or(0)) > kRepetitionsMax) {
    Unsupported(fmt::format("more than {} repetitions", kRepetitionsMax));
  }
  auto repeat = std::make_unique<RuleNode>(RuleNode{.kind = RuleNode::Kind::kRepeat});
  repeat->min = min;
  repeat->max = max;
  repeat->parts.push_back(std::move(item));
  return repeat;
}

RuleRef RuleReader::One(CodePoints set) {
  auto node = std::make_unique<RuleNode>(RuleNode{.kind = RuleNode::Kind::kSet});
  node->set = std::move(set);
  return node;
}

RuleRef RuleReader::CallOf(std::string_view name) {
  auto call = std::make_unique<RuleNode>(RuleNode{.kind = RuleNode::Kind::kRule});
  call->rule = RuleOf(name);
  return call;
}

}  // namespace quire::runner::constraint
