#include "api/base/fair/party.h"

#include <atomic>
#include <map>
#include <utility>

#include "api/base/mutex.h"

namespace quire::fair {

const std::string& PartyId::name() const {
  static const std::string nobody;
  return entry_ == nullptr ? nobody : entry_->name;
}

struct PartyTable::Entries {
  using Key = std::pair<std::string, int32_t>;

  std::shared_ptr<const PartyId::Entry> Find(const Key& key) {
    const api::MutexLock lock(mutex);
    const auto found = by_name.find(key);
    return found == by_name.end() ? nullptr : found->second.lock();
  }
  void Erase(const PartyId::Entry& gone) {
    const api::MutexLock lock(mutex);
    const auto found = by_name.find(Key(gone.name, gone.weight));
    // One of the same name may have come since nobody held this one.
    if (found != by_name.end() && found->second.expired()) by_name.erase(found);
  }

  api::Mutex mutex;
  std::map<Key, std::weak_ptr<const PartyId::Entry>> by_name GUARDED_BY(mutex);
  std::atomic<uint64_t> last_number = 0;
};

PartyTable::PartyTable() : entries_(std::make_shared<Entries>()) {}

PartyId PartyTable::Intern(std::string_view name, int32_t weight) {
  const Entries::Key key(name, weight);
  if (auto entry = entries_->Find(key)) return PartyId(std::move(entry));
  auto made = std::make_unique<PartyId::Entry>(++entries_->last_number, weight, key.first);
  const auto erase = [entries = entries_](const PartyId::Entry* gone) {
    entries->Erase(*gone);
    delete gone;
  };
  // Without the mutex, which it needs where there is no memory, or where another thread was faster.
  std::shared_ptr<const PartyId::Entry> entry(made.release(), erase);
  const api::MutexLock lock(entries_->mutex);
  auto& known = entries_->by_name[key];
  if (auto other = known.lock()) return PartyId(std::move(other));
  known = entry;
  return PartyId(entry);
}

size_t PartyTable::size() const {
  const api::MutexLock lock(entries_->mutex);
  return entries_->by_name.size();
}

PartyId PartyNamed(std::string_view name, int32_t weight) {
  static PartyTable parties;
  return name.empty() ? PartyId() : parties.Intern(name, weight);
}

}  // namespace quire::fair
