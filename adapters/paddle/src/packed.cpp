#include "packed.hpp"

#include <cstring>
#include <utility>

#include "actzip/codec.hpp"
#include "actzip/error.hpp"
#include "convert.hpp"
#include "memory.hpp"

namespace actzip::paddle_adapter {

/// Memory that Paddle holds. When the last of it is freed, backward no longer needs what was kept.
class Packed::HandedOut final : public phi::Allocation {
 public:
  HandedOut(std::byte* data, std::size_t bytes, const phi::Place& place, std::shared_ptr<void> owner,
            std::shared_ptr<Packed> packed)
      : phi::Allocation(data, bytes, place), owner_(std::move(owner)), packed_(std::move(packed)) {
    const std::lock_guard lock(packed_->mutex_);
    ++packed_->handed_out_;
  }
  HandedOut(const HandedOut&) = delete;
  HandedOut& operator=(const HandedOut&) = delete;
  ~HandedOut() override {
    owner_.reset();
    packed_->take_back();
  }

 private:
  std::shared_ptr<void> owner_;
  std::shared_ptr<Packed> packed_;
};

Packed::Packed(const phi::DenseTensor& tensor, Backward backward)
    : tensor_(tensor),
      offset_(tensor.meta().offset),
      place_(tensor.place()),
      version_(tensor_.InplaceVersionCounter().CurrentVersion()),
      backward_(backward) {}

void Packed::keep(Kept kept, DType dtype) {
  kept_ = std::move(kept);
  dtype_ = dtype;
  if (kept_.how != Keep::as_is) tensor_.clear();
}

void Packed::check_untouched() const {
  const std::uint32_t now = const_cast<phi::DenseTensor&>(tensor_).InplaceVersionCounter().CurrentVersion();
  if (now == version_) return;
  throw Error(ErrorCode::invalid_state, site() +
                                            " was saved for backward and has been changed by an in-place operation: "
                                            "it is at version " +
                                            std::to_string(now) + ", and was at " + std::to_string(version_));
}

void Packed::take_back() {
  Kept kept;  // freed without the lock
  std::shared_ptr<phi::Allocation> memory;
  const std::lock_guard lock(mutex_);
  if (--handed_out_ > 0 || backward_ == Backward::asks) return;
  is_gone_ = true;
  std::swap(kept, kept_);
  memory = tensor_.Holder();
  tensor_.clear();
}

/// Copies the tensor's whole stretch of memory, gaps included.
Allocation Packed::copy_of_span() const {
  const std::size_t bytes =
      static_cast<std::size_t>(span_elems(to_shape(tensor_.meta()))) * phi::SizeOf(tensor_.dtype());
  Allocation copy = paddle_memory().allocate(bytes, cpu_stream());
  std::memcpy(copy.data, tensor_.data(), bytes);
  return copy;
}

/// Decodes with the strides of the saved tensor, because Paddle takes only the memory from a restored tensor.
Allocation Packed::decoded_span() const {
  const Shape shape = to_shape(tensor_.meta());
  const Stream stream = cpu_stream();
  const std::size_t bytes = static_cast<std::size_t>(span_elems(shape)) * dtype_bytes(dtype_);
  if (kept_.how == Keep::shape_only) return paddle_memory().allocate(bytes, stream);
  // The result of restore() may be shared with other readers, so nothing may write into it.
  if (compact(shape) == shape && backward_ != Backward::writes) return restore(kept_, stream, paddle_memory());
  Allocation span = paddle_memory().allocate(bytes, stream);
  const Encoding encoding = encoding_of(kept_, stream, paddle_memory());
  decode(encoding.spec, encoding.bytes, {span.data, dtype_, shape}, encoding.seed, stream, encoding.segments);
  return span;
}

Allocation Packed::values() const {
  if (kept_.how != Keep::as_is) return decoded_span();
  if (backward_ == Backward::writes) return copy_of_span();
  const auto& holder = tensor_.Holder();
  return {static_cast<std::byte*>(holder->ptr()) + offset_, holder->size() - offset_, holder};
}

std::shared_ptr<phi::DenseTensor> Packed::restored() {
  {
    const std::lock_guard lock(mutex_);
    if (is_gone_) {
      throw Error(ErrorCode::invalid_state,
                  "backward asks a second time for a tensor that it has given back (allowed: "
                  "backward(retain_graph=True) the first time)");
    }
  }
  check_untouched();
  Allocation allocation = values();
  phi::DenseTensorMeta meta = tensor_.meta();
  meta.offset = offset_;
  auto memory = std::make_shared<HandedOut>(allocation.data - offset_, allocation.size + offset_, place_,
                                            std::move(allocation.owner), shared_from_this());
  return std::make_shared<phi::DenseTensor>(std::move(memory), std::move(meta));
}

}  // namespace actzip::paddle_adapter
