#include "runner/engine/encoders/encoder_turns.h"

#include <algorithm>
#include <functional>
#include <ranges>
#include <string>
#include <utility>

namespace quire::runner::engine {
namespace {

constexpr size_t kTextsMax = 256;  // of a task

}  // namespace

int64_t EncoderTurns::RowsMax(int64_t context) {
  const auto rows = [](Size size, int64_t longest) {
    return longest > kEncoderRows ? static_cast<int64_t>(kTasks[size]) * longest : 0;
  };
  return static_cast<int64_t>(kTasks[kShort]) * kEncoderRows + rows(kMedium, context / 4) +
         rows(kLong, context);
}

void EncoderTurns::Add(const api::Client& client, EncoderJob job) {
  const api::RequestId id = job.id;
  const Queue::Turn turn{client.party, std::hash<std::string>()(client.exchange)};
  Text& text = texts_.try_emplace(id, Text{std::move(job), turn}).first->second;
  queue_.Push(turn.party, turn.member, &text);
}

void EncoderTurns::Cancel(api::RequestId id) {
  const auto found = texts_.find(id);
  if (found == texts_.end()) return;
  Text& text = found->second;
  text.canceled = true;
  Task* const task = text.task;
  if (task != nullptr && !std::ranges::all_of(task->texts, &Text::canceled)) return;
  for (Text* const one : task == nullptr ? std::vector{&text} : task->texts)
    queue_.Remove(one->turn.party, one->turn.member, one);
  if (task != nullptr) return End(*task);
  texts_.erase(found);
}

fair::Quota::Lease EncoderTurns::PlaceFor(const Text& text) {
  const int64_t rows = text.job.rows();
  const Size size = rows <= kEncoderRows ? kShort : rows <= context_ / 4 ? kMedium : kLong;
  return {places_[size], text.turn.party};
}

EncoderTurns::Task* EncoderTurns::Choose(int64_t mixed_rows) {
  const auto first = queue_.Pop([this](const fair::PartyId&, uint64_t, const Text* text) {
    return text->task != nullptr || !PlaceFor(*text).RefusalFor(1);
  });
  if (!first) return nullptr;
  Task* const task = first->item->task;
  if (task == nullptr) return &Start(*first->item, mixed_rows);
  const auto in_task = [task](const fair::PartyId&, uint64_t, const Text* text) {
    return text->task == task;
  };
  for (size_t i = 1; i < task->texts.size(); ++i) queue_.Pop(in_task);
  return task;
}

EncoderTurns::Task& EncoderTurns::Start(Text& first, int64_t mixed_rows) {
  Task& task = tasks_.emplace_back(Task{.place = PlaceFor(first)});
  task.place.GrowTo(1);
  bool mixed = false;
  const auto mixes = [&](const Text& text) {
    return text.turn.party != first.turn.party || text.turn.member != first.turn.member;
  };
  const auto fits = [&](const fair::PartyId&, uint64_t, const Text* text) {
    const int64_t limit = mixed || mixes(*text) ? std::min(mixed_rows, kEncoderRows) : kEncoderRows;
    return text->task == nullptr && task.rows + text->job.rows() <= limit;
  };
  for (Text* text = &first; text != nullptr;) {
    mixed |= mixes(*text);
    text->task = &task;
    task.rows += text->job.rows();
    task.texts.push_back(text);
    const auto next = task.texts.size() < kTextsMax ? queue_.Pop(fits) : std::nullopt;
    text = next ? next->item : nullptr;
  }
  return task;
}

void EncoderTurns::EndTurn(Task& task, std::chrono::nanoseconds took, bool done) {
  for (Text* const text : task.texts | std::views::reverse) {
    const int64_t cost = took.count() * text->job.rows() / task.rows;
    if (done) {
      queue_.Charge(text->turn, cost);
    } else {
      queue_.Return(text->turn, text, cost);
    }
  }
  if (done) End(task);
}

void EncoderTurns::End(Task& task) {
  for (const Text* const text : task.texts) {
    const api::RequestId id = text->job.id;
    texts_.erase(id);
  }
  tasks_.remove_if([&](const Task& one) { return &one == &task; });
}

size_t EncoderTurns::running() const {
  size_t count = 0;
  for (const Task& task : tasks_) count += task.texts.size();
  return count;
}

}  // namespace quire::runner::engine
