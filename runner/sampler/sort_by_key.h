// Sorts long lists in linear time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::runner::sampler {

inline constexpr size_t kSortByKeyMin = 1024;  // elements; std::sort is faster for fewer

// Sorts by `before`, a strict total order. `key` gives an element's uint32_t, which never falls in that
// order. Elements of the same key take more time where they are not in order. `spare`: memory for the same
// number of elements.
template <class T, class Key, class Before>
void SortByKey(std::vector<T>& list, std::vector<T>& spare, Key key, Before before) {
  if (list.size() < kSortByKeyMin) return std::sort(list.begin(), list.end(), before);
  // A stable pass for each digit of the key, the lowest first.
  constexpr uint32_t kBits = 11;
  constexpr size_t kValues = size_t{1} << kBits;
  constexpr size_t kDigits = 3;
  const auto digit = [](uint32_t of, size_t place) { return of >> (place * kBits) & (kValues - 1); };
  std::array<std::array<size_t, kValues>, kDigits>
      places{};  // counts of the digits, then where the next one goes
  for (const T& element : list) {
    const uint32_t of = key(element);
    for (size_t place = 0; place < kDigits; ++place) ++places[place][digit(of, place)];
  }
  spare.resize(list.size());
  for (size_t place = 0; place < kDigits; ++place) {
    auto& next = places[place];
    if (next[digit(key(list.front()), place)] == list.size()) continue;  // all have the same digit
    size_t begin = 0;
    for (size_t& at : next) {
      const size_t count = at;
      at = begin;
      begin += count;
    }
    for (const T& element : list) spare[next[digit(key(element), place)]++] = element;
    list.swap(spare);
  }
  for (auto begin = list.begin(); begin != list.end();) {
    const auto end =
        std::find_if(begin + 1, list.end(), [&](const T& element) { return key(element) != key(*begin); });
    if (!std::is_sorted(begin, end, before)) std::sort(begin, end, before);
    begin = end;
  }
}

}  // namespace quire::runner::sampler
