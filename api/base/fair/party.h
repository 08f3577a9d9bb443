// Who shares what there is: a party is an API key or, without keys, an address. Its name is looked up once;
// from then on it is a number with a weight.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace quire::fair {

class PartyTable;

// A party, which exists as long as one of its ids does. Any thread; a copy counts references. The id that
// was made without a table is nobody's, for the program's own work.
class PartyId {
 public:
  PartyId() = default;

  // 0: nobody. No two parties of one table that exist at the same time have the same number.
  uint64_t number() const { return entry_ == nullptr ? 0 : entry_->number; }
  int32_t weight() const { return entry_ == nullptr ? 1 : entry_->weight; }
  // As given to the table; empty: nobody.
  const std::string& name() const;

  friend bool operator==(const PartyId& one, const PartyId& other) { return one.entry_ == other.entry_; }
  // By number: it may be the key of a map.
  friend auto operator<=>(const PartyId& one, const PartyId& other) {
    return one.number() <=> other.number();
  }

 private:
  friend class PartyTable;
  struct Entry {
    uint64_t number = 0;
    int32_t weight = 1;
    std::string name = {};
  };
  explicit PartyId(std::shared_ptr<const Entry> entry) : entry_(std::move(entry)) {}

  std::shared_ptr<const Entry> entry_;
};

// Any thread; may go before its ids.
class PartyTable {
 public:
  PartyTable();

  // REQUIRES: a name; a weight of at least 1. Another weight than before makes another party, so that all ids
  // of one agree.
  PartyId Intern(std::string_view name, int32_t weight = 1);
  size_t size() const;

 private:
  struct Entries;
  std::shared_ptr<Entries> entries_;
};

// As the process' own table has it; without a name: nobody.
PartyId PartyNamed(std::string_view name, int32_t weight = 1);

}  // namespace quire::fair
