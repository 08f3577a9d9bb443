// The filters each phase brings; FindFilter() looks through them.
#pragma once

#include <span>
#include <string_view>

#include "runner/jinja/builtins.h"

namespace quire::runner::jinja {

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

std::span<const NamedFilter> TextFilters();       // of strings
std::span<const NamedFilter> ValueFilters();      // of single values: numbers, defaults, JSON
std::span<const NamedFilter> SequenceFilters();   // of sequences as a whole
std::span<const NamedFilter> SelectionFilters();  // of a sequence's items: map, select, ...
std::span<const NamedFilter> OrderFilters();      // sort, dictsort, unique

}  // namespace quire::runner::jinja
