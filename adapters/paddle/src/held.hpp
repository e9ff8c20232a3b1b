// What stands in Paddle's graph for a saved tensor, until backward asks for it.
#pragma once

#include <paddle/phi/core/dense_tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "actzip/session.hpp"
#include "actzip/types.hpp"

namespace actzip::paddle_adapter {

/// Paddle clears what it restored when backward is done with a node, but what a pack hook gave lives as long as the
/// loss. So the bytes go with the last memory that was handed out, not with this object.
class Held : public std::enable_shared_from_this<Held> {
 public:
  /// How the memory of what was saved is used in backward.
  enum class Backward : std::uint8_t {
    reads,   ///< it may be the user's own
    writes,  ///< it may be written: a copy each time
    asks,    ///< a PyLayer, which may ask as often as it likes: nothing is let go before the object is
  };

  Held(const phi::DenseTensor& tensor, Backward backward);

  /// `kept` holds elements of type `dtype`.
  void keep(Kept kept, DType dtype);

  /// The tensor as it was, or what its codec makes of it, in the layout that it had.
  /// Throws Error if it was written to since, or if it was given back already.
  std::shared_ptr<phi::DenseTensor> restored();

  [[nodiscard]] bool is_lossy() const { return actzip::is_lossy(kept_); }
  [[nodiscard]] std::string site() const { return kept_.site ? *kept_.site : std::string("a tensor"); }

 private:
  class HandedOut;

  void check_untouched() const;
  [[nodiscard]] Allocation values() const;
  [[nodiscard]] Allocation copy_of_span() const;
  [[nodiscard]] Allocation decoded_span() const;
  void take_back();

  Kept kept_;
  DType dtype_ = DType::u8;
  phi::DenseTensor tensor_;  ///< without memory if that is not kept; shares the count of writes with the user's
  std::size_t offset_ = 0;   ///< of its first element in its memory, in bytes
  phi::Place place_;
  std::uint32_t version_ = 0;
  Backward backward_;
  std::mutex mutex_;  ///< of the two below: backward may end on another thread
  int handed_out_ = 0;
  bool is_gone_ = false;
};

}  // namespace actzip::paddle_adapter
