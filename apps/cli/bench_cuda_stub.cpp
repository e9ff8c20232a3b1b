// Replaces bench_cuda.cu in a build without CUDA.
#include "bench_device.hpp"

namespace actzip::cli {

std::unique_ptr<BenchDevice> make_cuda_device() { throw Error(ErrorCode::backend_unavailable, cuda_status().problem); }

}  // namespace actzip::cli
