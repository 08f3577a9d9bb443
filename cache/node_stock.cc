#include "cache/node_stock.h"

#include <new>
#include <utility>

#include "cache/check.h"

namespace quire::cache {

NodeStock::~NodeStock() {
  while (free_ != nullptr) ::operator delete(std::exchange(free_, free_->next));
}

void NodeStock::Reserve(size_t nodes) {
  while (size_ < promised_ + nodes) {
    free_ = new (::operator new(kNodeBytes)) Free{free_};
    ++size_;
  }
}

void* NodeStock::Take() noexcept {
  QUIRE_CACHE_CHECK(size_ > promised_);
  --size_;
  return std::exchange(free_, free_->next);
}

void NodeStock::Give(void* node) noexcept {
  if (size_ >= promised_ + kKept) return ::operator delete(node);
  free_ = new (node) Free{free_};
  ++size_;
}

void NodeStock::ReleaseFree() noexcept {
  for (; size_ > promised_; --size_) ::operator delete(std::exchange(free_, free_->next));
}

NodePromise::NodePromise(NodeStock& stock, size_t nodes) : stock_(&stock), nodes_(nodes) {
  stock.Reserve(nodes);
  stock.promised_ += nodes;
}

NodePromise::NodePromise(NodePromise&& other) noexcept
    : stock_(other.stock_), nodes_(std::exchange(other.nodes_, 0)) {}

NodePromise& NodePromise::operator=(NodePromise&& other) noexcept {
  std::swap(stock_, other.stock_);
  std::swap(nodes_, other.nodes_);
  return *this;
}

NodePromise::~NodePromise() { stock_->promised_ -= nodes_; }

}  // namespace quire::cache
