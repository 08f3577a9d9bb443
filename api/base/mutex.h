// Mutexes that clang checks: under -Wthread-safety it rejects a use of a GUARDED_BY member without its mutex.
// Other compilers see std::mutex. House.Tree allows no other mutex in the product, and the fuzz job compiles
// all users of this header.
//
// A condition variable waits with a UniqueLock; its predicate is a lambda with REQUIRES. Clang does not look
// into constructors and destructors.
#pragma once

#include <mutex>

#if defined(__clang__)
#define QUIRE_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define QUIRE_THREAD_SAFETY(attribute)
#endif

// Members and global variables: the mutex is held where they are used.
#define GUARDED_BY(mutex) QUIRE_THREAD_SAFETY(guarded_by(mutex))
// Functions: the mutex is held by the caller, must not be held by it, is locked by the call, is unlocked by
// it.
#define REQUIRES(...) QUIRE_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) QUIRE_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) QUIRE_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define RELEASE(...) QUIRE_THREAD_SAFETY(release_capability(__VA_ARGS__))
// Classes: a mutex, or what locks one as long as it lives.
#define CAPABILITY(name) QUIRE_THREAD_SAFETY(capability(name))
#define SCOPED_CAPABILITY QUIRE_THREAD_SAFETY(scoped_lockable)

namespace quire::api {

class CAPABILITY("mutex") Mutex : public std::mutex {
 public:
  void lock() ACQUIRE() { std::mutex::lock(); }
  void unlock() RELEASE() { std::mutex::unlock(); }
};

class [[nodiscard]] SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// For condition variables, and for what unlocks in between.
class [[nodiscard]] SCOPED_CAPABILITY UniqueLock : public std::unique_lock<std::mutex> {
 public:
  explicit UniqueLock(Mutex& mutex) ACQUIRE(mutex) : std::unique_lock<std::mutex>(mutex) {}
  ~UniqueLock() RELEASE() {}
  UniqueLock(const UniqueLock&) = delete;
  UniqueLock& operator=(const UniqueLock&) = delete;

  void lock() ACQUIRE() { std::unique_lock<std::mutex>::lock(); }
  void unlock() RELEASE() { std::unique_lock<std::mutex>::unlock(); }
};

}  // namespace quire::api
