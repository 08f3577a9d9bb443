#include "runner/engine/encoders/encoder_turns.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace quire::runner::engine {
namespace {

constexpr size_t kTextsMax = 256;  // of a task

}  // namespace

EncoderTurns::EncoderTurns(int64_t context) : context_(context), room_(RoomFor(context)) {}

EncoderTurns::OfSizes<int64_t> EncoderTurns::RoomFor(int64_t context) {
  constexpr int64_t kShortTasks = 8;
  const auto if_longer = [](int64_t longest, int64_t rows) { return longest > kEncoderRows ? rows : 0; };
  return {kShortTasks * kEncoderRows, if_longer(context / 4, context), if_longer(context, 2 * context)};
}

int64_t EncoderTurns::RowsMax(int64_t context) {
  const OfSizes<int64_t> room = RoomFor(context);
  return room[kShort] + room[kMedium] + room[kLong];
}

EncoderTurns::Size EncoderTurns::SizeOf(const EncoderJob& job) const {
  if (job.rows() <= kEncoderRows) return kShort;
  return job.rows() <= context_ / 4 ? kMedium : kLong;
}

void EncoderTurns::Add(const api::Client& client, EncoderJob job) {
  const std::string& name = client.party.name();
  auto party = std::ranges::find(parties_, name, &Party::name);
  if (party == parties_.end()) party = parties_.insert(party, Party{.name = name});
  auto lane = std::ranges::find(party->lanes, client.exchange, &Lane::exchange);
  if (lane == party->lanes.end()) {
    lane = party->lanes.insert(lane, {.party = &*party, .exchange = client.exchange, .arrival = ++arrivals_});
  }
  lane->jobs.push_back(std::move(job));
  shares_.Enter(name, client.party.weight());
}

void EncoderTurns::Cancel(api::RequestId id) {
  for (Task& task : tasks_) {
    const auto part = std::ranges::find(task.parts, id, [](const Part& one) { return one.job.id; });
    if (part == task.parts.end()) continue;
    part->canceled = true;
    if (std::ranges::all_of(task.parts, &Part::canceled)) End(task);
    return;
  }
  for (Party& party : parties_) {
    for (Lane& lane : party.lanes) {
      if (std::erase_if(lane.jobs, [&](const EncoderJob& job) { return job.id == id; }) == 0) continue;
      shares_.Exit(party.name);
      return Remove(lane);
    }
  }
}

bool EncoderTurns::FitsParty(const Lane& lane) const {
  const Size size = SizeOf(lane.jobs.front());
  return lane.party->rows[size] + lane.jobs.front().rows() <= room_[size] / 2;
}

bool EncoderTurns::FitsAll(const Lane& lane) const {
  const Size size = SizeOf(lane.jobs.front());
  return rows_[size] + lane.jobs.front().rows() <= room_[size];
}

// Whom nobody of the same size may overtake.
void EncoderTurns::FindBlocked() {
  blocked_.fill(kNone);
  for (Party& party : parties_) {
    party.blocked.fill(kNone);
    for (const Lane& lane : party.lanes) {
      if (!lane.waits()) continue;
      const Size size = SizeOf(lane.jobs.front());
      const bool fits = FitsParty(lane);
      if (fits && FitsAll(lane)) continue;
      uint64_t& first = fits ? blocked_[size] : party.blocked[size];
      first = std::min(first, lane.arrival);
    }
  }
}

bool EncoderTurns::CanGoOn(const Lane& lane) const {
  if (lane.task != nullptr) return true;
  if (!lane.waits() || !FitsParty(lane) || !FitsAll(lane)) return false;
  const Size size = SizeOf(lane.jobs.front());
  return lane.arrival < std::min(blocked_[size], lane.party->blocked[size]);
}

EncoderTurns::Lane* EncoderTurns::ChooseIn(Party& party) const {
  Lane *fresh = nullptr, *other = nullptr;
  for (Lane& lane : party.lanes) {
    Lane*& first = lane.fresh ? fresh : other;
    if (first == nullptr && CanGoOn(lane)) first = &lane;
  }
  if (fresh == nullptr || (party.owes_turn && other != nullptr)) return other;
  return fresh;
}

// A party whose texts find no room holds nobody's virtual time back.
void EncoderTurns::UpdateShares() {
  std::vector<FairShare::Request> requests;
  requests.reserve(parties_.size());
  for (Party& party : parties_) requests.push_back({&party.name, ChooseIn(party) != nullptr});
  shares_.Update(requests);
}

EncoderTurns::Task* EncoderTurns::Choose(int64_t mixed_rows) {
  FindBlocked();
  UpdateShares();
  Lane* next = nullptr;
  std::tuple<double, bool> least;
  for (Party& party : parties_) {
    Lane* const lane = ChooseIn(party);
    if (lane == nullptr) continue;
    const std::tuple rank(shares_.Of(party.name).virtual_time, !lane->fresh);
    if (next != nullptr && rank >= least) continue;
    next = lane;
    least = rank;
  }
  if (next == nullptr) return nullptr;
  next->party->owes_turn = next->fresh && std::ranges::any_of(next->party->lanes, [this](const Lane& lane) {
                             return !lane.fresh && CanGoOn(lane);
                           });
  return next->task != nullptr ? next->task : &Start(*next, mixed_rows);
}

EncoderTurns::Task& EncoderTurns::Start(Lane& leader, int64_t mixed_rows) {
  std::vector<Lane*> lanes;
  for (Party& party : parties_) {
    for (Lane& lane : party.lanes) {
      if (lane.waits() && &lane != &leader) lanes.push_back(&lane);
    }
  }
  const int64_t limit = !lanes.empty() ? std::min(mixed_rows, kEncoderRows) : kEncoderRows;
  lanes.push_back(&leader);
  Task& task = tasks_.emplace_back();
  Move(leader, task);
  // One text of each in turn, while there is room.
  for (bool moved = true; moved;) {
    moved = false;
    for (Lane* const lane : lanes) {
      if (lane->jobs.empty() || task.parts.size() == kTextsMax) continue;
      if (task.rows + lane->jobs.front().rows() > limit || !FitsParty(*lane) || !FitsAll(*lane)) continue;
      Move(*lane, task);
      moved = true;
    }
  }
  return task;
}

void EncoderTurns::Move(Lane& lane, Task& task) {
  EncoderJob job = std::move(lane.jobs.front());
  lane.jobs.pop_front();
  lane.task = &task;
  lane.arrival = ++arrivals_;  // its next text overtakes nobody who waits by now
  const Size size = SizeOf(job);
  task.rows += job.rows();
  lane.party->rows[size] += job.rows();
  rows_[size] += job.rows();
  task.parts.push_back({std::move(job), &lane});
}

void EncoderTurns::EndTurn(Task& task, std::chrono::nanoseconds took) {
  task.spent += took;
  for (const Part& part : task.parts) {
    shares_.Charge(part.lane->party->name, took.count() * part.job.rows() / task.rows);
    part.lane->fresh = false;
  }
  for (const Part& part : task.parts) {
    auto& lanes = part.lane->party->lanes;
    const auto at = std::ranges::find_if(lanes, [&](const Lane& lane) { return &lane == part.lane; });
    lanes.splice(lanes.end(), lanes, at);
  }
}

void EncoderTurns::End(Task& task) {
  for (const Part& part : task.parts) {
    const Size size = SizeOf(part.job);
    rows_[size] -= part.job.rows();
    part.lane->party->rows[size] -= part.job.rows();
    part.lane->task = nullptr;
    shares_.Exit(part.lane->party->name);
  }
  std::vector<Lane*> lanes;
  for (const Part& part : task.parts) {
    if (std::ranges::find(lanes, part.lane) == lanes.end()) lanes.push_back(part.lane);
  }
  tasks_.remove_if([&](const Task& one) { return &one == &task; });
  for (Lane* const lane : lanes) Remove(*lane);
}

void EncoderTurns::Remove(Lane& lane) {
  if (lane.task != nullptr || !lane.jobs.empty()) return;
  Party& party = *lane.party;
  party.lanes.remove_if([&](const Lane& one) { return &one == &lane; });
  if (party.lanes.empty()) parties_.remove_if([&](const Party& one) { return &one == &party; });
}

size_t EncoderTurns::waiting() const {
  size_t count = 0;
  for (const Party& party : parties_) {
    for (const Lane& lane : party.lanes) count += lane.jobs.size();
  }
  return count;
}

size_t EncoderTurns::running() const {
  size_t count = 0;
  for (const Task& task : tasks_) count += task.parts.size();
  return count;
}

}  // namespace quire::runner::engine
