// Norms on CUDA; jobs are validated and not empty. Without CUDA, stub.cpp stands here and says so.
#pragma once

#include "actzip/row_norm.hpp"
#include "codec/batch_norm_job.hpp"

namespace actzip::cuda {

/// Whether this build has them.
bool has_batch_norm() noexcept;

/// Workspaces have ChannelSums::floats(), and for backward GradientNumbers before them.
void measure_batch(const ChannelRows& shape, const void* x, const BatchNormParameters& parameters, float* norm,
                   float* workspace, const Stream& stream);
void encode_normalized(const Rotated& spec, const codec::NormalizedJob& job);
void decode_normalized(const Rotated& spec, const codec::DenormalizedJob& job);
void batch_norm_backward(const Rotated& spec, const codec::DenormalizedJob& job, NormValues values,
                         const BatchNormGradients& gradients, float* workspace);
/// A norm of rows.
void decode_row_normalized(const Rotated& spec, const codec::DecodeJob& job, std::int64_t channels,
                           const RowNorm& norm);

}  // namespace actzip::cuda
