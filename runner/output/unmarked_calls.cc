#include "runner/output/unmarked_calls.h"

#include <algorithm>
#include <iterator>

#include "runner/output/text.h"
#include "runner/output/tool_call_syntax.h"

namespace quire::runner::output {
namespace {

constexpr size_t kFenceMarks = 3;
constexpr std::string_view kLanguage = "json";

}  // namespace

bool UnmarkedCalls::Advance(std::string_view text) {
  while (at_ < text.size()) {
    if (!ConsumeByte(text[at_++])) return false;
  }
  return true;
}

bool UnmarkedCalls::Read(std::string_view text, std::vector<api::ToolCall>& calls) const {
  if (values_.empty() || !open_.empty() || fence_marks_ > 0) return false;
  std::vector<api::ToolCall> read;
  for (const auto& [begin, end] : values_) {
    if (ReadJsonCalls(text.substr(begin, end - begin), tools_, read) != Reading::kCalls) return false;
  }
  for (const api::ToolCall& call : read) {
    if (tools_.Find(call.name) == nullptr) return false;
  }
  std::ranges::move(read, std::back_inserter(calls));
  return true;
}

bool UnmarkedCalls::ConsumeByte(char c) { return open_.empty() ? ConsumeBetween(c) : ConsumeInValue(c); }

bool UnmarkedCalls::ConsumeBetween(char c) {
  if (c == '`' || fence_marks_ > 0) return ConsumeFence(c);
  if (in_info_) {
    if (c == '\n') {
      in_info_ = false;
      return info_.empty() || info_ == kLanguage;
    }
    if (c != '{' && c != '[') {
      if (!IsSpace(c)) info_ += c;
      return kLanguage.starts_with(info_);
    }
    in_info_ = false;
  }
  if (IsSpace(c)) return true;
  if (c == ',' || c == ';') return std::exchange(may_separate_, false);
  if (c != '{' && c != '[') return false;
  may_separate_ = false;
  values_.emplace_back(at_ - 1, 0);
  return Open(c);
}

bool UnmarkedCalls::ConsumeFence(char c) {
  if (c != '`' || in_info_) return false;
  if (++fence_marks_ < kFenceMarks) return true;
  fence_marks_ = 0;
  in_fence_ = in_info_ = !in_fence_;
  info_.clear();
  return true;
}

bool UnmarkedCalls::Open(char c) {
  if (open_.size() == kJsonDepthMax) return false;
  open_.push_back(c);
  if (c == '{' && InCall()) {
    expects_ = Expects::kKey;
    named_ = has_arguments_ = false;
  }
  return true;
}

bool UnmarkedCalls::Close(char c) {
  if (open_.back() != (c == '}' ? '{' : '[')) return false;
  if (c == '}' && InCall() && !(named_ && has_arguments_)) return false;
  open_.pop_back();
  if (!open_.empty()) return true;
  values_.back().second = at_;
  may_separate_ = true;
  return true;
}

bool UnmarkedCalls::ConsumeInString(char c) {
  if (InCall()) string_ += c;
  if (escaped_) {
    escaped_ = false;
  } else if (c == '\\') {
    escaped_ = true;
  } else if (c == '"') {
    in_string_ = false;
    return !InCall() || EndString();
  }
  return true;
}

// Ends a string of an object that may be a call: a key, or a value.
bool UnmarkedCalls::EndString() {
  string_.pop_back();
  if (expects_ == Expects::kKey) {
    key_ = string_;
    expects_ = Expects::kColon;
  } else if (key_ == "name") {
    named_ = tools_.Find(string_) != nullptr;
    return named_;
  }
  return true;
}

bool UnmarkedCalls::ConsumeInCall(char c) {
  switch (expects_) {
    case Expects::kKey:
      return c == '"' || c == '}';
    case Expects::kColon:
      if (c == ':') expects_ = Expects::kValue;
      return c == ':';
    case Expects::kValue:
      expects_ = Expects::kEnd;
      if (key_ == "name") return c == '"';
      if (key_ != "arguments" && key_ != "parameters") return true;
      has_arguments_ = true;
      return c == '{';
    default:
      if (c == ',') expects_ = Expects::kKey;
      return true;
  }
}

bool UnmarkedCalls::ConsumeInValue(char c) {
  if (in_string_) return ConsumeInString(c);
  if (IsSpace(c)) return true;
  // A list that is no list of calls.
  if (open_.size() == 1 && open_[0] == '[' && c != '{' && c != ',' && c != ']') return false;
  if (InCall() && !ConsumeInCall(c)) return false;
  if (c == '"') {
    in_string_ = true;
    string_.clear();
  }
  if (c == '{' || c == '[') return Open(c);
  return (c != '}' && c != ']') || Close(c);
}

}  // namespace quire::runner::output
