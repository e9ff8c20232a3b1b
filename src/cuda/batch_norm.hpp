// Batch norm on CUDA; jobs are validated and not empty. Without CUDA, stub.cpp stands here and says so.
#pragma once

#include "codec/batch_norm_job.hpp"

namespace actzip::cuda {

/// Whether this build has them.
bool has_batch_norm() noexcept;

void normalization(const BatchStatistics& statistics, std::int64_t channels, float* data, const Stream& stream);
void encode_normalized(const Rotated& spec, const codec::NormalizedJob& job);
void decode_normalized(const Rotated& spec, const codec::DenormalizedJob& job);
/// `workspace` has GradientSums::floats().
void batch_norm_backward(const Rotated& spec, const codec::DenormalizedJob& job, const BatchNormGradients& gradients,
                         float* workspace);

}  // namespace actzip::cuda
