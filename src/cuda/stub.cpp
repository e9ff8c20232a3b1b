// Replaces the CUDA backend in a build without CUDA. Every call throws.
#include "actzip/backend.hpp"
#include "actzip/error.hpp"
#include "cuda/backend.hpp"

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

void copy_bytes(std::byte* /*dst*/, const std::byte* /*src*/, std::size_t /*bytes*/, const Stream& /*stream*/) {
  unavailable();
}

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

}  // namespace cuda
}  // namespace actzip
