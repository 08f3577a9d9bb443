// The places of requests that no runner has started: how many wait, and who still finds a place.
//
// Behind the places that anyone may take lies an eighth more, for parties that have less than a quarter of
// these waiting: one that fills the queue leaves room for others, and so do two. A party may be several
// people behind an address: one that has more waiting finds such a place for a short request while less than
// a quarter of these are its short ones. The engine serves short ones before long ones (place_rotation.h), so
// that these places are soon free again.
//
// Not a quota, which takes back what is above a share: who waits keeps its place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace quire::scheduler {

enum class AnswerLength : uint8_t { kAny, kShort };

// Short: at most 128 tokens behind a text of at most 8 KiB, some 2,000 tokens, if anything is known of it. A
// negative `num_predict` sets no bound.
constexpr AnswerLength LengthOf(int32_t num_predict, size_t text_bytes = 0) {
  constexpr size_t kTextBytesMax = size_t{8} << 10;
  const bool is_short = num_predict >= 0 && num_predict <= 128 && text_bytes <= kTextBytesMax;
  return is_short ? AnswerLength::kShort : AnswerLength::kAny;
}

// Owned by the scheduler; I/O thread only. A party is api::Client::Party(); the empty one, of which nobody
// knows how many there are, finds none of the places behind.
class QueuePlaces {
 public:
  // For anyone: of all models together, < 1 counts as 1; of one model, < 1: no limit of its own.
  QueuePlaces(int32_t all_max, int32_t model_max) : all_max_(std::max(all_max, 1)), model_max_(model_max) {}

  // For any model at all.
  bool HasRoom(const std::string& party, AnswerLength length = AnswerLength::kAny) const {
    return HasRoom(waiting_, all_max_, party, length);
  }
  bool HasRoom(const std::string& model, const std::string& party,
               AnswerLength length = AnswerLength::kAny) const {
    return HasRoom(party, length) &&
           (model_max_ < 1 || HasRoom(CountOf(models_, model), model_max_, party, length));
  }
  void Add(const std::string& model, const std::string& party, AnswerLength length = AnswerLength::kAny) {
    ++waiting_;
    ++models_[model];
    ++parties_[party];
    if (length == AnswerLength::kShort) ++short_ones_[party];
  }
  // REQUIRES: Add() of the same.
  void Remove(const std::string& model, const std::string& party, AnswerLength length = AnswerLength::kAny) {
    --waiting_;
    RemoveOne(models_, model);
    RemoveOne(parties_, party);
    if (length == AnswerLength::kShort) RemoveOne(short_ones_, party);
  }

  int32_t waiting() const { return waiting_; }
  // There are more than HasRoom() lets in.
  bool IsOverfull() const {
    const auto beyond = [](int32_t most) {
      return [most](const auto& entry) { return entry.second > most; };
    };
    const auto fills_places_behind = [this](const auto& entry) {
      return entry.second - CountOf(short_ones_, entry.first) > all_max_;
    };
    return waiting_ > all_max_ + Behind(all_max_) || std::ranges::any_of(parties_, fills_places_behind) ||
           (model_max_ > 0 && std::ranges::any_of(models_, beyond(model_max_ + Behind(model_max_))));
  }
  // As many places, all free.
  QueuePlaces WithoutRequests() const { return {all_max_, model_max_}; }
  // The same requests wait.
  bool HasCountsOf(const QueuePlaces& other) const {
    return waiting_ == other.waiting_ && models_ == other.models_ && parties_ == other.parties_ &&
           short_ones_ == other.short_ones_;
  }

 private:
  using Counts = std::unordered_map<std::string, int32_t>;  // without zeros

  static int32_t Behind(int32_t places) { return std::max(places / 8, 1); }
  static int32_t BehindForOne(int32_t places) { return std::max(Behind(places) / 4, 1); }
  static int32_t CountOf(const Counts& counts, const std::string& name) {
    const auto found = counts.find(name);
    return found == counts.end() ? 0 : found->second;
  }
  static void RemoveOne(Counts& counts, const std::string& name) {
    const auto found = counts.find(name);
    if (--found->second == 0) counts.erase(found);
  }
  bool HasRoom(int32_t waiting, int32_t places, const std::string& party, AnswerLength length) const {
    if (waiting < places) return true;
    if (party.empty() || waiting >= places + Behind(places)) return false;
    const Counts& counts = length == AnswerLength::kShort ? short_ones_ : parties_;
    return CountOf(counts, party) < BehindForOne(places);
  }

  int32_t all_max_, model_max_;
  int32_t waiting_ = 0;
  Counts models_, parties_;
  Counts short_ones_;  // of parties
};

}  // namespace quire::scheduler
