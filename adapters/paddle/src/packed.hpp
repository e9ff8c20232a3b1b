// What Paddle's graph holds in place of a saved tensor, until backward needs it.
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

/// Paddle frees what it restored when backward has finished a node, but it holds the result of a pack hook as long as
/// the loss lives. So the kept bytes are freed when the last memory that restored() handed out is freed, not when this
/// object is destroyed.
class Packed : public std::enable_shared_from_this<Packed> {
 public:
  /// How backward uses the memory of the saved tensor.
  enum class Backward : std::uint8_t {
    reads,   ///< only reads it, so it may be the user's own memory
    writes,  ///< may write into it, so it gets a copy each time
    asks,    ///< a PyLayer, which may restore it repeatedly: freed with this object only
  };

  Packed(const phi::DenseTensor& tensor, Backward backward);

  /// Keeps `kept`, whose elements have type `dtype`, instead of the tensor's memory.
  void keep(Kept kept, DType dtype);

  /// Returns the tensor, exactly or as its codec decodes it, in its original layout. Throws Error if the tensor was
  /// written to since it was saved, or if its bytes are freed already.
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
  phi::DenseTensor tensor_;  ///< without memory if that is not kept; shares its version counter with the user's
  std::size_t offset_ = 0;   ///< of its first element in its memory, in bytes
  phi::Place place_;
  std::uint32_t version_ = 0;
  Backward backward_;
  std::mutex mutex_;  ///< guards the two below: backward may end on another thread
  int handed_out_ = 0;
  bool is_gone_ = false;
};

}  // namespace actzip::paddle_adapter
