#include "cache/page_table.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "cache/check.h"

namespace quire::cache {
namespace {

constexpr int kBits = 4;
constexpr int kFanout = 1 << kBits;

}  // namespace

// At level 0 a leaf of pages, above it a node whose children are one level lower.
struct PageTable::Node {
  union Entry {
    Node* child;
    BlockId page;
  };

  explicit Node(int at_level) : level(at_level) {
    for (Entry& entry : entries) {
      if (level == 0) {
        entry.page = kNoBlock;
      } else {
        entry.child = nullptr;
      }
    }
  }

  bool has(int i) const {
    return level == 0 ? entries[static_cast<size_t>(i)].page != kNoBlock
                      : entries[static_cast<size_t>(i)].child != nullptr;
  }
  Entry& at(int i) { return entries[static_cast<size_t>(i)]; }
  const Entry& at(int i) const { return entries[static_cast<size_t>(i)]; }

  uint32_t references = 1;
  int32_t level;
  std::array<Entry, kFanout> entries;
};
static_assert(sizeof(PageTable::Node) <= NodeStock::kNodeBytes);

namespace {

using Node = PageTable::Node;

int64_t Span(int level) { return int64_t{1} << (kBits * (level + 1)); }  // indices under a node
int64_t EntrySpan(int level) { return int64_t{1} << (kBits * level); }   // indices under one entry
// The lowest level of a node that reaches the index from 0 on.
int LevelOf(int64_t index) {
  int level = 0;
  while (index >= Span(level)) ++level;
  return level;
}
int Slot(int64_t index, int level) { return static_cast<int>((index >> (kBits * level)) & (kFanout - 1)); }

// REQUIRES: reserved.
Node* NewNode(BlockPool* pool, int level) { return new (pool->nodes().Take()) Node(level); }

void ShareEntry(BlockPool* pool, Node* to, const Node* from, int i) {
  if (!from->has(i)) return;
  to->at(i) = from->at(i);
  if (from->level == 0) {
    pool->AddReference(from->at(i).page);
  } else {
    ++from->at(i).child->references;
  }
}

void Unref(BlockPool* pool, Node* node);

void DropEntry(BlockPool* pool, Node* node, int i) {
  if (!node->has(i)) return;
  if (node->level == 0) {
    pool->Release(std::exchange(node->at(i).page, kNoBlock));
  } else {
    Unref(pool, std::exchange(node->at(i).child, nullptr));
  }
}

void Unref(BlockPool* pool, Node* node) {
  if (--node->references > 0) return;
  for (int i = 0; i < kFanout; ++i) DropEntry(pool, node, i);
  node->~Node();
  pool->nodes().Give(node);
}

// Makes `node` private to its holder, keeping only the entries [first, last].
void Own(BlockPool* pool, Node*& node, int first = 0, int last = kFanout - 1) {
  if (node->references == 1) {
    for (int i = 0; i < first; ++i) DropEntry(pool, node, i);
    for (int i = last + 1; i < kFanout; ++i) DropEntry(pool, node, i);
    return;
  }
  Node* copy = NewNode(pool, node->level);
  for (int i = first; i <= last; ++i) ShareEntry(pool, copy, node, i);
  --node->references;
  node = copy;
}

bool Empty(const Node* node) {
  for (int i = 0; i < kFanout; ++i) {
    if (node->has(i)) return false;
  }
  return true;
}

void FreeIfEmpty(BlockPool* pool, Node*& node) {
  if (node != nullptr && Empty(node)) Unref(pool, std::exchange(node, nullptr));
}

// Whether all that `node` has lies in [from, to). `base` is the first index under it.
bool Within(const Node* node, int64_t base, int64_t from, int64_t to) {
  if (node == nullptr || (from <= base && base + Span(node->level) <= to)) return true;
  for (int i = 0; i < kFanout; ++i) {
    if (!node->has(i)) continue;
    const int64_t begin = base + i * EntrySpan(node->level);
    const int64_t end = begin + EntrySpan(node->level);
    if (from <= begin && end <= to) continue;
    if (node->level == 0 || end <= from || to <= begin) return false;
    if (!Within(node->at(i).child, begin, from, to)) return false;
  }
  return true;
}

// The entries of `node` at which [from, to) begins and ends.
struct Edges {
  int first;
  int last;
};
Edges EdgesOf(const Node* node, int64_t base, int64_t from, int64_t to) {
  const int level = node->level;
  return {from <= base ? 0 : Slot(from, level), base + Span(level) <= to ? kFanout - 1 : Slot(to - 1, level)};
}

bool Outside(const Node* node, int64_t base, int64_t from, int64_t to) {
  return base + Span(node->level) <= from || to <= base;
}

// Nodes that ClipNode takes. `shared`: somebody else has a node above.
size_t ClipNodes(const Node* node, int64_t base, int64_t from, int64_t to, bool shared) {
  if (Within(node, base, from, to) || Outside(node, base, from, to)) return 0;
  shared = shared || node->references > 1;
  size_t nodes = shared ? 1 : 0;
  if (node->level == 0) return nodes;
  const auto [first, last] = EdgesOf(node, base, from, to);
  const auto below = [&](int i) {
    return ClipNodes(node->at(i).child, base + i * EntrySpan(node->level), from, to, shared);
  };
  nodes += below(first);
  if (last != first) nodes += below(last);
  return nodes;
}

void ClipNode(BlockPool* pool, Node*& node, int64_t base, int64_t from, int64_t to) {
  if (Within(node, base, from, to)) return;
  if (Outside(node, base, from, to)) {
    Unref(pool, std::exchange(node, nullptr));
    return;
  }
  const int level = node->level;
  const auto [first, last] = EdgesOf(node, base, from, to);
  Own(pool, node, first, last);
  if (level > 0) {
    ClipNode(pool, node->at(first).child, base + first * EntrySpan(level), from, to);
    if (last != first) ClipNode(pool, node->at(last).child, base + last * EntrySpan(level), from, to);
  }
  FreeIfEmpty(pool, node);
}

// Replaces what `node` has from `index` on by what `tail` has there. Both start at `base`, at one level.
void Graft(BlockPool* pool, Node*& node, Node* tail, int level, int64_t base, int64_t index) {
  if (node == tail) return;
  if (index <= base) {
    if (node != nullptr) Unref(pool, node);
    node = tail;
    if (tail != nullptr) ++tail->references;
    return;
  }
  if (index >= base + Span(level)) return;
  const int split = Slot(index, level);
  if (node == nullptr) {
    node = NewNode(pool, level);
  } else {
    Own(pool, node, 0, split);
  }
  const bool inside = level > 0 && (index & (EntrySpan(level) - 1)) != 0;
  if (inside) {
    Graft(pool, node->at(split).child, tail == nullptr ? nullptr : tail->at(split).child, level - 1,
          base + split * EntrySpan(level), index);
  } else {
    DropEntry(pool, node, split);
    if (tail != nullptr) ShareEntry(pool, node, tail, split);
  }
  for (int i = split + 1; tail != nullptr && i < kFanout; ++i) ShareEntry(pool, node, tail, i);
  FreeIfEmpty(pool, node);
}

template <class Function>
void Visit(const Node* node, int64_t base, int64_t from, int64_t to, const Function& visit) {
  if (node == nullptr || base >= to || base + Span(node->level) <= from) return;
  for (int i = 0; i < kFanout; ++i) {
    const int64_t index = base + i * EntrySpan(node->level);
    if (!node->has(i)) continue;
    if (node->level > 0) {
      Visit(node->at(i).child, index, from, to, visit);
    } else if (index >= from && index < to) {
      visit(index, node->at(i).page);
    }
  }
}

void AuditNode(const Node* node, const PageTable::Auditor& auditor) {
  if (node == nullptr || !auditor.first_visit(node)) return;
  for (int i = 0; i < kFanout; ++i) {
    if (!node->has(i)) continue;
    if (node->level > 0) {
      AuditNode(node->at(i).child, auditor);
    } else {
      auditor.leaf_page(node->at(i).page);
    }
  }
}

}  // namespace

PageTable::PageTable(const PageTable& other) : pool_(other.pool_), root_(other.root_) {
  if (root_ != nullptr) ++root_->references;
}

PageTable::PageTable(PageTable&& other) noexcept
    : pool_(other.pool_), root_(std::exchange(other.root_, nullptr)) {}

PageTable& PageTable::operator=(PageTable other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(root_, other.root_);
  return *this;
}

PageTable::~PageTable() {
  if (root_ != nullptr) Unref(pool_, root_);
}

BlockId PageTable::Get(int64_t index) const {
  if (root_ == nullptr || index >= Span(root_->level)) return kNoBlock;
  const Node* node = root_;
  while (node->level > 0) {
    node = node->at(Slot(index, node->level)).child;
    if (node == nullptr) return kNoBlock;
  }
  return node->at(Slot(index, 0)).page;
}

bool PageTable::Exclusive(int64_t index) const {
  const Node* node = root_;
  while (true) {
    if (node->references != 1) return false;
    if (node->level == 0) return pool_->references(node->at(Slot(index, 0)).page) == 1;
    node = node->at(Slot(index, node->level)).child;
  }
}

void PageTable::GrowTo(int level) {
  if (root_ == nullptr) {
    root_ = NewNode(pool_, level);
    return;
  }
  while (root_->level < level) {
    Node* up = NewNode(pool_, root_->level + 1);
    up->at(0).child = root_;
    root_ = up;
  }
}

// Nodes that Put takes.
size_t PageTable::PutNodes(int64_t index) const {
  const int level = LevelOf(index);
  if (root_ == nullptr) return static_cast<size_t>(level) + 1;
  if (root_->level < level) return static_cast<size_t>(level - root_->level + level);
  size_t nodes = 0;
  bool shared = false;
  for (const Node* node = root_;; node = node->at(Slot(index, node->level)).child) {
    shared = shared || node->references > 1;
    nodes += shared ? 1 : 0;
    if (node->level == 0) return nodes;
    if (node->at(Slot(index, node->level)).child == nullptr) return nodes + static_cast<size_t>(node->level);
  }
}

size_t PageTable::PutNodesMax(int64_t from, int64_t to) const {
  if (from >= to) return 0;
  const int level = std::max(LevelOf(to - 1), root_ == nullptr ? 0 : root_->level);
  size_t nodes = static_cast<size_t>(level) + 1;  // by which the table grows
  for (int l = 0; l <= level; ++l) {
    nodes += static_cast<size_t>((to - 1) / Span(l) - from / Span(l) + 1);
  }
  return nodes;
}

size_t PageTable::ClipNodesMax() const {
  return root_ == nullptr ? 0 : 2 * (static_cast<size_t>(root_->level) + 1);
}

void PageTable::Put(int64_t index, BlockId page) {
  QUIRE_CACHE_CHECK(index >= 0 && page != kNoBlock);
  try {
    pool_->nodes().Reserve(PutNodes(index));
  } catch (const std::bad_alloc&) {
    pool_->Release(page);
    throw;
  }
  GrowTo(LevelOf(index));
  Node** node = &root_;
  while (true) {
    Own(pool_, *node);
    const int at = Slot(index, (*node)->level);
    if ((*node)->level == 0) {
      DropEntry(pool_, *node, at);
      (*node)->at(at).page = page;
      return;
    }
    Node*& child = (*node)->at(at).child;
    if (child == nullptr) child = NewNode(pool_, (*node)->level - 1);
    node = &child;
  }
}

void PageTable::Clip(int64_t from, int64_t to) {
  if (root_ == nullptr) return;
  if (from >= to) {
    Unref(pool_, std::exchange(root_, nullptr));
    return;
  }
  ReserveClip(from, to);
  ClipNode(pool_, root_, 0, from, to);
}

void PageTable::ReserveClip(int64_t from, int64_t to) const {
  if (root_ == nullptr || from >= to) return;
  pool_->nodes().Reserve(ClipNodes(root_, 0, from, to, false));
}

PageTable PageTable::Join(const PageTable& head, const PageTable& tail, int64_t index) {
  PageTable result = head;
  PageTable other = tail;
  if (other.root_ == nullptr || index >= Span(other.root_->level)) {
    result.Clip(0, index);
    return result;
  }
  if (result.root_ == nullptr) {
    other.Clip(index, INT64_MAX);
    return other;
  }
  const int level = std::max(result.root_->level, other.root_->level);
  // Both grow by at most that many, and the path to `index` is copied.
  result.pool_->nodes().Reserve(3 * (static_cast<size_t>(level) + 1));
  result.GrowTo(level);
  other.GrowTo(level);
  Graft(result.pool_, result.root_, other.root_, level, 0, index);
  return result;
}

void PageTable::ForEach(int64_t from, int64_t to, const std::function<void(int64_t, BlockId)>& visit) const {
  Visit(root_, 0, from, to, visit);
}

std::vector<BlockId> PageTable::Pages(int64_t from, int64_t to) const {
  std::vector<BlockId> pages;
  pages.reserve(static_cast<size_t>(std::max<int64_t>(0, to - from)));
  Visit(root_, 0, from, to, [&](int64_t, BlockId page) { pages.push_back(page); });
  return pages;
}

void PageTable::Audit(const Auditor& auditor) const { AuditNode(root_, auditor); }

}  // namespace quire::cache
