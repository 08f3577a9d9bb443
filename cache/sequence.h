// Handle of one sequence: page tables, a state slot and the common offset of all layers. Holds no token ids.
//
// Move-only; the destructor gives back what the sequence held. Engine thread only. Outlived by its
// HybridCache; not destroyed while a step or a speculation on it is open.
#pragma once

#include <memory>

#include "cache/types.h"

namespace quire::cache {

struct SequenceState;

class Sequence {
 public:
  Sequence();  // refers to nothing: may only be destroyed or assigned to
  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;
  ~Sequence();

  explicit operator bool() const { return state_ != nullptr; }
  Position offset() const;  // tokens so far, of every layer
  // Every layer has its state at offset(). False after a fork that some layer could not follow, or after a
  // canceled step that wrote recurrent state: it must then be restored before it can be appended to.
  bool ready() const;

 private:
  friend class HybridCache;
  friend class Speculation;
  explicit Sequence(std::unique_ptr<SequenceState> state);

  std::unique_ptr<SequenceState> state_;
};

}  // namespace quire::cache
