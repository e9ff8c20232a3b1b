// A tensor that is about to be saved between forward and backward, as an adapter describes it to a session.
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

/// A share in an object of the adapter's. Where the object counts for itself, nothing is allocated.
class Guard {
 public:
  struct Counting {
    void (*retain)(void* object);
    void (*release)(void* object);
  };

  Guard() = default;
  /// Takes over one count of `object`.
  Guard(void* object, const Counting& counting) noexcept : object_(object), counting_(&counting) {}
  /// A share of `owner`, in a box that is allocated.
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
  const Counting* counting_ = nullptr;  ///< lives for ever
};

/// What the memory of a tensor is known by: an address that means nothing but itself.
struct Identity {
  std::uintptr_t address = 0;  ///< 0: not known, never shared
  Guard guard;                 ///< while it is held, no other memory gets this address
};

/// What a tensor is a cast of, so that several casts of one tensor are kept once.
struct CastSource {
  /// Casts with the same number hold the same values in the same order. 0: not known. No number comes twice.
  std::uint64_t id = 0;
  std::int64_t offset = 0;  ///< of the first element in the cast's memory, in elements: it may be a part of the cast
  bool operator==(const CastSource&) const = default;
};

enum class Role : std::uint8_t {
  activation,
  parameter,    ///< a parameter, a buffer, or something derived from them: exists anyway, is never compressed
  unsupported,  ///< a kind of tensor no codec takes: sparse, complex, a subclass
};

/// The samples of a batch.
struct BatchSamples {
  std::int64_t count = 0;  ///< 0: not known; what dimension 0 counts is taken for them
  /// For each how much noise in it does to the gradient, beside the others; null: not known. On the tensor's device,
  /// and valid as the tensor is.
  const float* factors = nullptr;
};

/// A tensor that is about to be saved, as an adapter describes it.
struct SavedTensor {
  ConstTensorView view;  ///< data may be null and dtype meaningless if the role is not `activation`
  Role role = Role::activation;
  std::string_view role_reason;  ///< for the report, if the role is not `activation`; a literal
  std::size_t bytes = 0;         ///< of its elements, if the role is not `activation`; 0 if it exists anyway
  Identity identity;             ///< of its storage; of other roles only if they have view.data and view.shape
  std::uint64_t version = 0;     ///< changes when its memory is written to, for whatever tensor
  CastSource source;
  BatchSamples samples;  ///< of the batch; whether this tensor has them is the session's to find
  OperatorFacts facts;
  bool is_input = false;  ///< no gradient goes through it, so that somebody may hold it for longer than the step
};

}  // namespace actzip
