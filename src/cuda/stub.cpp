// Stands in for the CUDA backend in a build without CUDA: every call says so.
#include "actzip/backend.hpp"
#include "actzip/error.hpp"
#include "cuda/activation.hpp"
#include "cuda/backend.hpp"
#include "cuda/batch_norm.hpp"

namespace actzip {

namespace {
constexpr const char* kProblem =
    "this build has no CUDA kernels: configure with nvcc on the path (cmake --preset cuda)";

[[noreturn]] void unavailable() { throw Error(ErrorCode::backend_unavailable, kProblem); }
}  // namespace

CudaStatus cuda_status() {
  CudaStatus status;
  status.problem = kProblem;
  return status;
}

bool is_capturing(const Stream& /*stream*/) { return false; }

namespace cuda {

void encode(const Affine& /*spec*/, const codec::EncodeJob& /*job*/) { unavailable(); }
void encode(const Rotated& /*spec*/, const codec::EncodeJob& /*job*/) { unavailable(); }
void encode(const Mask& /*spec*/, const codec::EncodeJob& /*job*/) { unavailable(); }
void encode(const Index& /*spec*/, const codec::EncodeJob& /*job*/) { unavailable(); }
void encode(const Cast& /*spec*/, const codec::EncodeJob& /*job*/) { unavailable(); }
void encode(const Copy& /*spec*/, const codec::EncodeJob& /*job*/) { unavailable(); }
void encode(const Dual& /*spec*/, const codec::EncodeJob& /*job*/) { unavailable(); }

void decode(const Affine& /*spec*/, const codec::DecodeJob& /*job*/) { unavailable(); }
void decode(const Rotated& /*spec*/, const codec::DecodeJob& /*job*/) { unavailable(); }
void decode(const Mask& /*spec*/, const codec::DecodeJob& /*job*/) { unavailable(); }
void decode(const Index& /*spec*/, const codec::DecodeJob& /*job*/) { unavailable(); }
void decode(const Cast& /*spec*/, const codec::DecodeJob& /*job*/) { unavailable(); }
void decode(const Copy& /*spec*/, const codec::DecodeJob& /*job*/) { unavailable(); }
void decode(const Dual& /*spec*/, const codec::DecodeJob& /*job*/) { unavailable(); }

void weigh_segments(const codec::WeighJob& /*job*/) { unavailable(); }
void plan_segments(const codec::SegmentPlanJob& /*job*/) { unavailable(); }

bool has_batch_norm() noexcept { return false; }
void measure_batch(const ChannelRows& /*shape*/, const void* /*x*/, const BatchNormParameters& /*parameters*/,
                   float* /*norm*/, float* /*workspace*/, const Stream& /*stream*/) {
  unavailable();
}
void encode_normalized(const Rotated& /*spec*/, const codec::NormalizedJob& /*job*/) { unavailable(); }
void decode_normalized(const Rotated& /*spec*/, const codec::DenormalizedJob& /*job*/) { unavailable(); }
void batch_norm_backward(const Rotated& /*spec*/, const codec::DenormalizedJob& /*job*/, NormValues /*values*/,
                         const BatchNormGradients& /*gradients*/, float* /*workspace*/) {
  unavailable();
}
void decode_row_normalized(const Rotated& /*spec*/, const codec::DecodeJob& /*job*/, std::int64_t /*channels*/,
                           const RowNorm& /*norm*/) {
  unavailable();
}

bool has_activation() noexcept { return false; }
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
void relu_backward(const codec::MaskedGradientJob& /*job*/) { unavailable(); }
void dropout_backward(const codec::MaskedGradientJob& /*job*/, float /*factor*/) { unavailable(); }

}  // namespace cuda
}  // namespace actzip
