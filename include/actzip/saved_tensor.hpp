// How an adapter describes to a session a tensor that is about to be saved for backward.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "actzip/policy.hpp"
#include "actzip/view.hpp"

namespace actzip {

/// Shared ownership of an adapter's object. Allocates nothing if the object counts its own references.
class Guard {
 public:
  struct Counting {
    void (*retain)(void* object);
    void (*release)(void* object);
  };

  Guard() = default;
  /// Takes over one reference to `object`.
  Guard(void* object, const Counting& counting) noexcept : object_(object), counting_(&counting) {}
  /// Shares `owner` through a box that is allocated.
  template <class T>
  Guard(std::shared_ptr<T> owner) : Guard(new Box<T>{std::move(owner)}, Box<T>::kCounting) {}  // NOLINT: a conversion
  Guard(const Guard& other) : object_(other.object_), counting_(other.counting_) {
    if (object_ != nullptr) counting_->retain(object_);
  }
  Guard(Guard&& other) noexcept : object_(std::exchange(other.object_, nullptr)), counting_(other.counting_) {}
  Guard& operator=(Guard other) noexcept {
    std::swap(object_, other.object_);
    std::swap(counting_, other.counting_);
    return *this;
  }
  ~Guard() {
    if (object_ != nullptr) counting_->release(object_);
  }

 private:
  template <class T>
  struct Box {
    std::shared_ptr<T> owner;
    std::atomic<int> count{1};
    static constexpr Counting kCounting{
        .retain = [](void* box) { ++static_cast<Box*>(box)->count; },
        .release =
            [](void* box) {
              if (--static_cast<Box*>(box)->count == 0) delete static_cast<Box*>(box);
            },
    };
  };

  void* object_ = nullptr;
  const Counting* counting_ = nullptr;  ///< lives as long as the program
};

/// Identifies the memory of a tensor, by an address that is only compared.
struct Identity {
  std::uintptr_t address = 0;  ///< 0: unknown, never shared
  Guard guard;                 ///< while it is held, no other memory gets this address
};

/// Identifies what a tensor is a cast of, so that several casts of one tensor are kept once.
struct CastSource {
  /// Casts with the same number hold the same values in the same order. 0: unknown. A number is never reused.
  std::uint64_t id = 0;
  /// Of its first element in the cast's memory, in elements: the tensor may be a part of the cast.
  std::int64_t offset = 0;
  bool operator==(const CastSource&) const = default;
};

enum class Role : std::uint8_t {
  activation,
  parameter,    ///< a parameter, a buffer, or derived from them: exists anyway and is never compressed
  unsupported,  ///< a kind of tensor that no codec takes: sparse, complex, a subclass
};

/// The samples of a batch.
struct BatchSamples {
  std::int64_t count = 0;  ///< 0: unknown; dimension 0 is then taken to count samples
  /// For each sample, how strongly noise in it affects the gradient, relative to the others; null: unknown. On the
  /// tensor's device, and valid as long as the tensor.
  const float* factors = nullptr;
};

/// A tensor that is about to be saved, as an adapter describes it.
struct SavedTensor {
  ConstTensorView view;  ///< data may be null and dtype meaningless if the role is not `activation`
  Role role = Role::activation;
  std::string_view role_reason;  ///< for the report, if the role is not `activation`; a string literal
  std::size_t bytes = 0;         ///< size of its elements, if the role is not `activation`; 0 if it exists anyway
  Identity identity;             ///< of its storage; for other roles only if view.data and view.shape are set
  std::uint64_t version = 0;     ///< changes when its memory is written to, through whichever tensor
  CastSource source;
  BatchSamples samples;  ///< of the batch; the session finds out whether this tensor has them
  OperatorFacts facts;
  bool is_input = false;  ///< no gradient passes through it, so its caller may hold it for longer than the step
};

}  // namespace actzip
