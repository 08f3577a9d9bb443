// The variables in scope where a template is parsed.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runner/work/work_budget.h"

namespace quire::runner::gotemplate {

// A search takes logarithmic time: a template may declare a variable in each action. A hash map would not do,
// because a client can choose names of the same hash.
class Variables {
 public:
  Variables() { Declare("$"); }
  Variables(Variables&&) = default;
  Variables& operator=(Variables&&) = default;

  bool Contains(std::string_view name) const {
    CountWork(1);
    return declared_.contains(name);
  }
  void Declare(std::string_view name) {
    CountWork(1);
    const auto entry = declared_.try_emplace(std::string(name)).first;
    ++entry->second;
    in_order_.push_back(entry);
  }
  size_t size() const { return in_order_.size(); }
  // Leaves a scope: the first `size` declarations stay.
  void Shrink(size_t size) {
    for (; in_order_.size() > size; in_order_.pop_back()) {
      if (--in_order_.back()->second == 0) declared_.erase(in_order_.back());
    }
  }

 private:
  using Counts = std::map<std::string, size_t, std::less<>>;
  Counts declared_;  // how many declarations of the name are in scope
  std::vector<Counts::iterator> in_order_;
};

}  // namespace quire::runner::gotemplate
