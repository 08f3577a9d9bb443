// The JSON value of this folder: members keep the order they came in, and building one is linear in its size.
//
// nlohmann::ordered_json searches for the key at every insertion and copies whole subtrees when an object
// grows, which a hostile body turns into quadratic time. This container only appends; ReadJson() and
// ReadMessagePack() resolve repeated keys (the last wins) once per object.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace quire::api {

template <class Key, class T, class Less = std::less<Key>, class Allocator = void>
class AppendMap : public std::vector<std::pair<Key, T>> {
 public:
  using Base = std::vector<std::pair<Key, T>>;
  using key_type = Key;
  using mapped_type = T;
  using key_compare = std::equal_to<>;
  using iterator = typename Base::iterator;
  using const_iterator = typename Base::const_iterator;
  using size_type = typename Base::size_type;
  using value_type = typename Base::value_type;
  using Base::Base;

  // Appends; never searches.
  template <class K>
  T& operator[](K&& key) {
    this->emplace_back(std::forward<K>(key), T());
    return this->back().second;
  }
  template <class K>
  std::pair<iterator, bool> emplace(K&& key, T&& value) {
    this->emplace_back(std::forward<K>(key), std::move(value));
    return {std::prev(this->end()), true};
  }

  template <class K>
  iterator find(const K& key) {
    auto it = this->begin();
    while (it != this->end() && it->first != key) ++it;
    return it;
  }
  template <class K>
  const_iterator find(const K& key) const {
    return const_cast<AppendMap*>(this)->find(key);
  }
  template <class K>
  size_type count(const K& key) const {
    return find(key) == this->end() ? 0 : 1;
  }
  template <class K>
  T& at(const K& key) {
    const auto it = find(key);
    if (it == this->end()) throw std::out_of_range("key not found");
    return it->second;
  }
  template <class K>
  const T& at(const K& key) const {
    return const_cast<AppendMap*>(this)->at(key);
  }
};

using Json = nlohmann::basic_json<AppendMap>;

}  // namespace quire::api
