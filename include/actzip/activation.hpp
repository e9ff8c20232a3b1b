// Activation functions that encode their input in the pass that computes them, and decode it in the pass that computes
// the gradient: forward saves one pass over memory, backward two. The same for gradients behind a mask or a product.
//
// Tensors are dense runs of elements on the stream's device; pointers are multiples of 16. The functions allocate
// nothing and do not synchronise.
#pragma once

#include <cstdint>

#include "actzip/spec.hpp"
#include "actzip/stream.hpp"
#include "actzip/types.hpp"
#include "actzip/view.hpp"

namespace actzip {

enum class Activation : std::uint8_t {
  gelu,       ///< x * Phi(x)
  gelu_tanh,  ///< gelu, approximated by tanh
  silu,       ///< x * sigmoid(x)
};

struct Elements {
  std::int64_t count = 0;
  DType dtype = DType::f32;  ///< of input, output and their gradients
};

/// Whether the functions below support these arguments: `rotated` in groups of 256 without a mask plane, a multiple of
/// 8 elements of f32, f16 or bf16, on CUDA.
bool can_fuse_activation(const CodecSpec& spec, const Elements& elements, Device device);

/// Writes y = activation(x), and into `dst` the encoding of x: the bytes that encode() makes of it with the same seed.
/// f32 is as exact as CUDA's functions are; 16-bit types have an error of 2^-23 of x before they are rounded. x and y
/// may be the same memory. Throws Error as encode() does, and Error(invalid_spec) where can_fuse_activation() returns
/// false.
void encode_activated(const CodecSpec& spec, Activation activation, const Elements& elements, const void* x, void* y,
                      ByteSpan dst, Seed seed, const Stream& stream);

/// Writes the gradient of x, computed from the gradient of y and the encoding of x. Both gradients may be the same
/// memory. Values that are too large for their type become infinite, as loss scaling requires. Throws as above.
void activation_backward(const CodecSpec& spec, Activation activation, const Elements& elements, ConstByteSpan src,
                         const void* y_gradient, void* x_gradient, Seed seed, const Stream& stream);

/// Writes y_gradient * `scale` * the values decoded from `src`: the gradient of a product or of a square. Both
/// gradients may be the same memory. Throws as above.
void product_backward(const CodecSpec& spec, const Elements& elements, ConstByteSpan src, float scale,
                      const void* y_gradient, void* x_gradient, Seed seed, const Stream& stream);

/// Whether the functions below support these arguments: any number of elements of f32, f16 or bf16, on CUDA.
bool can_fuse_mask(const Elements& elements, Device device);

/// Writes y_gradient where a bit of `mask` is 1, and 0 elsewhere. `mask` is what `encode(Mask{}, ...)` makes of the
/// result of a ReLU. Both gradients may be the same memory. Throws Error(invalid_spec) where can_fuse_mask() returns
/// false.
void relu_backward(const Elements& elements, ConstByteSpan mask, const void* y_gradient, void* x_gradient,
                   const Stream& stream);

/// Writes y_gradient * factor where a bit is 1, and y_gradient * 0 elsewhere, which is not 0 if the gradient is not
/// finite. Otherwise as above.
void dropout_backward(const Elements& elements, ConstByteSpan mask, float factor, const void* y_gradient,
                      void* x_gradient, const Stream& stream);

}  // namespace actzip
