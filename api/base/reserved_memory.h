// Marks work whose allocations must not fail: it keeps the books of all requests, and half of it done would
// leave one of them without an answer. It allocates little; when there is no memory it gets what the process
// holds back for it (server/memory_reserve.h). Elsewhere a failing allocation throws std::bad_alloc and ends
// the one request that needed it.
#pragma once

namespace quire::api {

// Belongs to the current thread. Scopes nest. No co_await inside: another coroutine would run in it.
class ReservedMemoryScope {
 public:
  ReservedMemoryScope() { ++depth_; }
  ~ReservedMemoryScope() { --depth_; }
  ReservedMemoryScope(const ReservedMemoryScope&) = delete;
  ReservedMemoryScope& operator=(const ReservedMemoryScope&) = delete;

  static bool active() { return depth_ > 0; }

 private:
  friend class OrdinaryMemoryScope;
  static inline thread_local int depth_ = 0;
};

// Work within such a scope that may fail after all, and whose allocations may be large.
class OrdinaryMemoryScope {
 public:
  OrdinaryMemoryScope() : depth_(ReservedMemoryScope::depth_) { ReservedMemoryScope::depth_ = 0; }
  ~OrdinaryMemoryScope() { ReservedMemoryScope::depth_ = depth_; }
  OrdinaryMemoryScope(const OrdinaryMemoryScope&) = delete;
  OrdinaryMemoryScope& operator=(const OrdinaryMemoryScope&) = delete;

 private:
  const int depth_;
};

}  // namespace quire::api
