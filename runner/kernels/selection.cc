#include "runner/kernels/selection.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "runner/kernels/attention_work.h"
#include "runner/kernels/index_scores.h"

namespace quire::runner::kernels {
namespace {

using cache::Position;

// Scores that are kept at once, 16 MiB; more rows wait for the next turn.
constexpr size_t kMostScores = size_t{1} << 22;
// Index keys of a task.
constexpr Position kKeysOfTask = 2048;

const cache::AttentionGroup& GroupOf(const AttentionLayer& at) { return at.layout->groups[at.group]; }

std::byte* PageOf(const AttentionLayer& at, size_t sequence, Position position) {
  const auto pages = at.step->Pages(sequence, at.group);
  const Position page_tokens = at.layout->page_tokens;
  const auto index = static_cast<size_t>(position / page_tokens - pages.front().first / page_tokens);
  assert(index < pages.size());
  return pages[index].base;
}

// A row of the batch.
struct Query {
  size_t sequence;
  size_t row;
  Position position;
};

std::vector<Query> QueriesOf(const AttentionLayer& at) {
  std::vector<Query> queries;
  queries.reserve(static_cast<size_t>(at.row_begin.back()));
  for (size_t s = 0; s + 1 < at.row_begin.size(); ++s) {
    const auto begin = static_cast<size_t>(at.row_begin[s]), end = static_cast<size_t>(at.row_begin[s + 1]);
    for (size_t row = begin; row < end; ++row) {
      queries.push_back({s, row, at.step->offset(s) + static_cast<Position>(row - begin)});
    }
  }
  return queries;
}

// What competes for one row's places.
struct Candidates {
  Candidates(const cache::AttentionGroup& group, const IndexRule& rule, Position position)
      : tokens(position + 1),
        keys(tokens / group.stride),
        count(rule.block > 1 ? (tokens + rule.block - 1) / rule.block : keys),
        width(rule.block > 1 ? rule.block
              : rule.expand  ? group.stride
                             : 1) {}

  Position tokens;  // that the row sees
  Position keys;    // whole index keys among them
  Position count;   // of what competes: keys or blocks
  Position width;   // entries of a list that one stands for

  Position ListEnd(const IndexRule& rule) const { return rule.block > 1 || rule.expand ? tokens : keys; }
};

// The largest score of each block, in place; the row's last blocks come before all others.
void PoolBlocks(const IndexRule& rule, const Candidates& candidates, std::span<float> scores) {
  const auto block = static_cast<size_t>(rule.block), keys = static_cast<size_t>(candidates.keys);
  const auto count = static_cast<size_t>(candidates.count), local = static_cast<size_t>(rule.local_blocks);
  for (size_t b = 0; b < count; ++b) {
    const auto first = scores.begin() + static_cast<ptrdiff_t>(b * block);
    const auto last = scores.begin() + static_cast<ptrdiff_t>(std::min(keys, (b + 1) * block));
    const float largest = *std::max_element(first, last);
    scores[b] = b + local >= count ? std::numeric_limits<float>::infinity() : largest;
  }
}

// The places of the `best` largest scores, ascending; of equal ones the first.
void Largest(std::span<float> scores, size_t best, std::vector<float>& work, std::vector<int32_t>* places) {
  // What is no number would have no place in any order.
  std::ranges::replace_if(
      scores, [](float score) { return std::isnan(score); }, -std::numeric_limits<float>::infinity());
  work.assign(scores.begin(), scores.end());
  const auto last = work.begin() + static_cast<ptrdiff_t>(best) - 1;
  std::ranges::nth_element(work, last, std::greater());
  const float least = *last;
  const auto above = static_cast<size_t>(
      std::count_if(scores.begin(), scores.end(), [&](float score) { return score > least; }));
  size_t equal = best - above;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > least || (scores[i] == least && equal > 0 && equal-- > 0)) {
      places->push_back(static_cast<int32_t>(i));
    }
  }
}

void AppendRange(Position begin, Position end, std::vector<int32_t>* to) {
  const size_t before = to->size();
  to->resize(before + static_cast<size_t>(std::max<Position>(end - begin, 0)));
  std::iota(to->begin() + static_cast<ptrdiff_t>(before), to->end(), static_cast<int32_t>(begin));
}

// One row's choice among candidates with these scores.
void Choose(const IndexRule& rule, const Candidates& candidates, std::span<float> scores,
            std::vector<int32_t>* list) {
  thread_local std::vector<float> work;
  thread_local std::vector<int32_t> places;
  if (rule.block > 1) PoolBlocks(rule, candidates, scores);
  places.clear();
  Largest(scores.first(static_cast<size_t>(candidates.count)), static_cast<size_t>(rule.best), work, &places);
  const Position end = candidates.ListEnd(rule);
  for (const int32_t place : places) {
    const Position first = place * candidates.width;
    AppendRange(first, std::min(first + candidates.width, end), list);
  }
  if (rule.expand) AppendRange(candidates.keys * candidates.width, candidates.tokens, list);
}

// Rows of one sequence whose scores are computed together.
struct Turn {
  size_t begin, end;  // of the queries that have a choice
  size_t stride;      // scores of a list
};

class Chooser {
 public:
  Chooser(const AttentionLayer& at, const IndexRule& rule, std::span<const float> q,
          std::span<const float> weights, Selection* to)
      : at_(at), rule_(rule), q_(q), weights_(weights), to_(*to) {}

  void Run(ThreadPool& pool) {
    const std::vector<Query> all = QueriesOf(at_);
    const auto lists = static_cast<size_t>(rule_.lists);
    to_.lists = rule_.lists;
    if (to_.keys.size() < all.size() * lists) to_.keys.resize(all.size() * lists);
    for (const Query& query : all) {
      const Candidates candidates = Of(query);
      for (size_t list = 0; list < lists; ++list) {
        to_.keys[query.row * lists + list].clear();
        if (candidates.count > rule_.best) continue;
        AppendRange(0, candidates.ListEnd(rule_), &to_.keys[query.row * lists + list]);
      }
      if (candidates.count > rule_.best) queries_.push_back(query);
    }
    to_.all = queries_.empty();
    for (size_t next = 0; next < queries_.size();) next = RunTurn(pool, next);
  }

 private:
  Candidates Of(const Query& query) const { return {GroupOf(at_), rule_, query.position}; }

  // As many rows as there is room for scores; returns the first one behind them.
  size_t RunTurn(ThreadPool& pool, size_t begin) {
    const auto lists = static_cast<size_t>(rule_.lists);
    Turn turn{.begin = begin, .end = begin, .stride = 0};
    while (turn.end < queries_.size()) {
      const size_t stride = std::max(turn.stride, static_cast<size_t>(Of(queries_[turn.end]).keys));
      if (turn.end > begin && (turn.end + 1 - begin) * lists * stride > kMostScores) break;
      turn.stride = stride;
      ++turn.end;
    }
    const size_t rows = turn.end - begin, needed = rows * lists * turn.stride;
    if (to_.scores.size() < needed) to_.scores.resize(needed);
    Score(pool, turn);
    pool.ParallelFor(rows * lists, [&](size_t task) {
      const Query& query = queries_[begin + task / lists];
      const Candidates candidates = Of(query);
      const std::span<float> scores(to_.scores.data() + task * turn.stride,
                                    static_cast<size_t>(candidates.keys));
      Choose(rule_, candidates, scores, &to_.keys[query.row * lists + task % lists]);
    });
    return turn.end;
  }

  // Tasks of neighboring rows of a sequence and some of its keys.
  void Score(ThreadPool& pool, const Turn& turn) {
    const auto heads = static_cast<size_t>(rule_.heads), lists = static_cast<size_t>(rule_.lists);
    const auto dim = static_cast<size_t>(GroupOf(at_).head_dim);
    constexpr size_t kHeadsOfTask = 512;  // they share transposed keys
    const size_t most = std::max<size_t>(1, kHeadsOfTask / heads);
    std::vector<IndexTask> tasks;
    for (size_t i = turn.begin; i < turn.end;) {
      size_t end = i + 1;
      while (end < turn.end && end - i < most && queries_[end].sequence == queries_[i].sequence &&
             queries_[end].row == queries_[end - 1].row + 1) {
        ++end;
      }
      const Position keys = Of(queries_[end - 1]).keys;
      const size_t row = queries_[i].row;
      for (Position first = 0; first < keys; first += kKeysOfTask) {
        tasks.push_back({.sequence = queries_[i].sequence,
                         .rows = end - i,
                         .first = first,
                         .last = std::min(keys, first + kKeysOfTask),
                         .q = q_.data() + row * heads * dim,
                         .weights = weights_.empty() ? nullptr : weights_.data() + row * heads,
                         .scores = to_.scores.data() + (i - turn.begin) * lists * turn.stride,
                         .stride = turn.stride});
      }
      i = end;
    }
    pool.ParallelFor(tasks.size(), [&](size_t task) { ScoreIndexKeys(at_, rule_, tasks[task]); });
  }

  const AttentionLayer& at_;
  const IndexRule& rule_;
  const std::span<const float> q_, weights_;
  Selection& to_;
  std::vector<Query> queries_;  // that have a choice
};

// The keys and values that one query gathered, as pages of a sequence whose last token it is.
class GatheredKeys final : public cache::StepView {
 public:
  // For one KV head.
  GatheredKeys(const cache::Layout& from, size_t group, size_t tokens)
      : layout_{.page_tokens = from.page_tokens, .groups = {from.groups[group]}, .recurrent = {}},
        tokens_(tokens) {
    cache::AttentionGroup& one = layout_.groups[0];
    one.layers = one.kv_heads = one.stride = 1;
    one.window = 0;
    one.chunked = false;
    const auto page_tokens = static_cast<size_t>(layout_.page_tokens);
    const size_t bytes = cache::PageBytes(layout_, 0), pages = (tokens + page_tokens - 1) / page_tokens;
    thread_local std::vector<std::byte> memory;  // of the query that the thread works on
    if (memory.size() < bytes * pages) memory.resize(bytes * pages);
    views_.reserve(pages);
    for (size_t i = 0; i < pages; ++i) {
      const size_t first = i * page_tokens;
      views_.push_back({.base = memory.data() + i * bytes,
                        .first = static_cast<Position>(first),
                        .tokens = static_cast<int32_t>(std::min(page_tokens, tokens - first))});
    }
  }

  const cache::Layout& layout() const { return layout_; }

  // Copies keys [first, end) of the source's sequence and their values behind those gathered before.
  void Add(const AttentionLayer& at, size_t sequence, int32_t kv_head, Position first, Position end) {
    const cache::AttentionGroup& source = GroupOf(at);
    const Position stride = source.stride, page_tokens = layout_.page_tokens;
    while (first < end) {
      const Position position = (first + 1) * stride - 1;  // of the key's last token
      const Position in_page = (page_tokens - 1 - position % page_tokens) / stride + 1;
      const auto to_row = static_cast<Position>(next_) % page_tokens;
      const Position count = std::min({end - first, in_page, page_tokens - to_row});
      CopyRun({.page = PageOf(at, sequence, position),
               .row = cache::RowOf(*at.layout, source, position),
               .to = views_[next_ / static_cast<size_t>(page_tokens)].base,
               .to_row = static_cast<int32_t>(to_row),
               .count = static_cast<int32_t>(count)},
              at, kv_head);
      next_ += static_cast<size_t>(count);
      first += count;
    }
  }

  size_t sequences() const override { return 1; }
  Position offset(size_t) const override { return static_cast<Position>(tokens_) - 1; }
  int32_t new_tokens(size_t) const override { return 1; }
  std::span<const cache::PageView> Pages(size_t, size_t) const override { return views_; }
  std::byte* Slot(size_t) const override { return nullptr; }

 private:
  // Keys that follow each other in their page, and will.
  struct Run {
    const std::byte* page;
    int32_t row;
    std::byte* to;
    int32_t to_row, count;
  };

  void CopyRun(const Run& run, const AttentionLayer& at, int32_t kv_head) const {
    const std::byte* const keys = run.page + cache::KeyOffset(*at.layout, at.group, at.layer, kv_head);
    const auto row = static_cast<size_t>(run.row), to_row = static_cast<size_t>(run.to_row);
    const auto count = static_cast<size_t>(run.count);
    if (layout_.groups[0].latent > 0) {
      const size_t bytes = cache::RowBytes(layout_, 0);
      std::memcpy(run.to + to_row * bytes, keys + row * bytes, count * bytes);
      return;
    }
    cache::ForEachKeyPlane(layout_, 0, [&](size_t plane, size_t bytes) {
      std::memcpy(run.to + plane + to_row * bytes, keys + plane + row * bytes, count * bytes);
    });
    const std::byte* const values = run.page + cache::ValueOffset(*at.layout, at.group, at.layer, kv_head);
    std::byte* const to = run.to + cache::ValueOffset(layout_, 0, 0, 0);
    for (int32_t i = 0; i < run.count;)
      i += CopyValues(values, run.row + i, to, run.to_row + i, run.count - i);
  }

  // Copies some of `count` values, and says how many. Pairs of tokens whose numbers lie between each other's
  // go together.
  int32_t CopyValues(const std::byte* from, int32_t row, std::byte* to, int32_t to_row, int32_t count) const {
    const cache::ValuePlace source = cache::PlaceOfValue(layout_, 0, row);
    const cache::ValuePlace place = cache::PlaceOfValue(layout_, 0, to_row);
    const bool pairs = source.count > 1 && row % 2 == 0 && to_row % 2 == 0 && count > 1;
    const int32_t some = source.count == 1 ? count : pairs ? count / 2 * 2 : 1;
    std::memcpy(to + place.scale, from + source.scale, place.scale_bytes * static_cast<size_t>(some));
    if (source.count == 1 || pairs) {
      const size_t bytes = cache::RowBytes(layout_, 0) - place.scale_bytes;  // of a token
      std::memcpy(to + place.first, from + source.first, bytes * static_cast<size_t>(some));
      return some;
    }
    for (size_t i = 0; i < place.count; ++i) {
      std::memcpy(to + place.first + i * place.stride, from + source.first + i * source.stride, place.bytes);
    }
    return some;
  }

  cache::Layout layout_;
  size_t tokens_, next_ = 0;
  std::vector<cache::PageView> views_;
};

// The keys [begin, end) that a row at `position` sees of a source without a choice.
struct SeenKeys {
  SeenKeys(const cache::AttentionGroup& group, Position position)
      : begin(cache::OldestVisible(group, position)), end((position + 1) / group.stride) {}
  Position begin, end;
};

class SelectedTask {
 public:
  SelectedTask(std::span<const SelectedKeys> sources, int32_t heads, const Scoring& scoring,
               std::span<const float> q, std::span<float> out)
      : sources_(sources),
        group_(GroupOf(sources[0].at)),
        heads_(static_cast<size_t>(heads)),
        share_(heads / group_.kv_heads),
        scoring_(scoring),
        q_(q),
        out_(out) {}

  // Query heads [begin, end) of those that share the KV head.
  void Run(const Query& query, int32_t kv_head, int32_t begin, int32_t end) const {
    const auto dim = static_cast<size_t>(group_.head_dim), value = static_cast<size_t>(group_.value_dim());
    const int32_t first_head = kv_head * share_ + begin;
    const auto first = static_cast<size_t>(first_head), count = static_cast<size_t>(end - begin);
    const size_t at_head = query.row * heads_ + first;
    Position tokens = 0;
    for (const SelectedKeys& source : sources_) {
      ForEachRun(source, query, kv_head, [&](Position from, Position to) { tokens += to - from; });
    }
    if (tokens == 0) {
      std::ranges::fill(out_.subspan(at_head * value, count * value), 0.0F);
      return;
    }
    GatheredKeys gathered(*sources_[0].at.layout, sources_[0].at.group, static_cast<size_t>(tokens));
    for (const SelectedKeys& source : sources_) {
      ForEachRun(source, query, kv_head, [&](Position from, Position to) {
        gathered.Add(source.at, query.sequence, kv_head, from, to);
      });
    }
    constexpr int32_t kOneRow[] = {0, 1};
    const AttentionLayer at{
        .layout = &gathered.layout(), .group = 0, .layer = 0, .step = &gathered, .row_begin = kOneRow};
    const Geometry geometry(at, static_cast<int32_t>(count));
    Scoring scoring = scoring_;
    if (!scoring.sinks.empty()) scoring.sinks = scoring.sinks.subspan(first, count);
    const AttentionWork work{.at = at,
                             .geometry = geometry,
                             .scoring = scoring,
                             .q = q_.data() + at_head * dim,
                             .out = out_.data() + at_head * value};
    TaskFunctionFor(at.layout->groups[0])(
        work, {.sequence = 0, .kv_head = 0, .begin = 0, .end = static_cast<int32_t>(count)}, {});
  }

 private:
  // visit(first, end) for keys that follow each other.
  template <class Visit>
  static void ForEachRun(const SelectedKeys& source, const Query& query, int32_t kv_head,
                         const Visit& visit) {
    if (source.chosen == nullptr) {
      const SeenKeys seen(GroupOf(source.at), query.position);
      return visit(seen.begin, seen.end);
    }
    const std::span<const int32_t> keys = source.chosen->Of(query.row, kv_head);
    for (size_t i = 0; i < keys.size();) {
      size_t end = i + 1;
      while (end < keys.size() && keys[end] == keys[end - 1] + 1) ++end;
      visit(Position{keys[i]}, Position{keys[end - 1]} + 1);
      i = end;
    }
  }

  const std::span<const SelectedKeys> sources_;
  const cache::AttentionGroup& group_;
  const size_t heads_;
  const int32_t share_;
  const Scoring& scoring_;
  const std::span<const float> q_;
  const std::span<float> out_;
};

}  // namespace

int64_t Selection::bytes() const {
  size_t bytes = scores.capacity() * sizeof(float);
  for (const std::vector<int32_t>& list : keys) bytes += list.capacity() * sizeof(int32_t);
  return static_cast<int64_t>(bytes);
}

std::byte* PlaceOfRow(const AttentionLayer& at, size_t sequence, Position position) {
  const auto row = static_cast<size_t>(cache::RowOf(*at.layout, GroupOf(at), position));
  return PageOf(at, sequence, position) + cache::KeyOffset(*at.layout, at.group, at.layer, 0) +
         row * cache::RowBytes(*at.layout, at.group);
}

void WriteRow(const AttentionLayer& at, size_t sequence, Position position, std::span<const float> row) {
  ConvertFromFloat32(GroupOf(at).element, row, PlaceOfRow(at, sequence, position));
}

void ReadRow(const AttentionLayer& at, size_t sequence, Position position, std::span<float> row) {
  ConvertToFloat32(GroupOf(at).element, PlaceOfRow(at, sequence, position), row);
}

void SelectKeys(ThreadPool& pool, const AttentionLayer& at, const IndexRule& rule, std::span<const float> q,
                std::span<const float> weights, Selection* to) {
  assert(GroupOf(at).element == cache::ElementType::kF32 && rule.best > 0 && rule.heads % rule.lists == 0);
  Chooser(at, rule, q, weights, to).Run(pool);
}

void SelectedAttention(ThreadPool& pool, std::span<const SelectedKeys> sources, int32_t heads,
                       const Scoring& scoring, std::span<const float> q, std::span<float> out) {
  assert(scoring.slopes.empty());  // gathered keys have other distances
  const AttentionLayer& first = sources[0].at;
  const int32_t kv_heads = GroupOf(first).kv_heads, share = heads / kv_heads;
  const std::vector<Query> queries = QueriesOf(first);
  // Heads of a task: few where there are too few rows to keep all threads busy. Each task gathers for itself.
  constexpr int32_t kLeast = 12;
  const int32_t most =
      std::min(AttentionPlan::kItemRows, AttentionPlan::kItemNumbers / GroupOf(first).head_dim);
  const size_t all = queries.size() * static_cast<size_t>(heads);
  const auto even = static_cast<int32_t>(all / (2 * static_cast<size_t>(std::max(pool.threads(), 1))));
  const int32_t length = std::min(share, std::clamp(even, std::min(kLeast, most), most));
  const int32_t parts = (share + length - 1) / length;
  const SelectedTask task(sources, heads, scoring, q, out);
  const size_t tasks = static_cast<size_t>(kv_heads) * static_cast<size_t>(parts);
  pool.ParallelFor(queries.size() * tasks, [&](size_t i) {
    const auto in_row = static_cast<int32_t>(i % tasks);
    const int32_t begin = in_row % parts * length;
    task.Run(queries[i / tasks], in_row / parts, begin, std::min(begin + length, share));
  });
}

}  // namespace quire::runner::kernels
