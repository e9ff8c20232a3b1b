// Replaces the kernels of fused operators in a build without CUDA. They are never called, because has_fused_operators()
// is checked first.
#include <stdexcept>

#include "ops/backend.hpp"

namespace actzip::cuda {

namespace {
[[noreturn]] void unavailable() { throw std::logic_error("actzip: a fused operator in a build without CUDA"); }
}  // namespace

bool has_fused_operators() noexcept { return false; }

void measure_batch(const ChannelRows& /*shape*/, const void* /*x*/, const BatchNormParameters& /*parameters*/,
                   float* /*norm*/, float* /*workspace*/, const Stream& /*stream*/) {
  unavailable();
}
void encode_normalized(const Rotated& /*spec*/, const ops::NormalizedJob& /*job*/) { unavailable(); }
void decode_normalized(const Rotated& /*spec*/, const ops::DenormalizedJob& /*job*/) { unavailable(); }
void batch_norm_backward(const Rotated& /*spec*/, const ops::DenormalizedJob& /*job*/, NormValues /*values*/,
                         const BatchNormGradients& /*gradients*/, float* /*workspace*/) {
  unavailable();
}
void decode_row_normalized(const Rotated& /*spec*/, const codec::DecodeJob& /*job*/, std::int64_t /*channels*/,
                           const RowNorm& /*norm*/) {
  unavailable();
}

void encode_activated(const Rotated& /*spec*/, Activation /*activation*/, const codec::EncodeJob& /*job*/,
                      void* /*y*/) {
  unavailable();
}
void activation_backward(const Rotated& /*spec*/, Activation /*activation*/, const codec::DecodeJob& /*job*/,
                         const void* /*y_gradient*/) {
  unavailable();
}
void product_backward(const Rotated& /*spec*/, float /*scale*/, const codec::DecodeJob& /*job*/,
                      const void* /*y_gradient*/) {
  unavailable();
}
void relu_backward(const ops::MaskedGradientJob& /*job*/) { unavailable(); }
void dropout_backward(const ops::MaskedGradientJob& /*job*/, float /*factor*/) { unavailable(); }

}  // namespace actzip::cuda
