// The kernels of fused operators. Jobs are validated and not empty. Without CUDA, stub.cpp replaces them and throws.
#pragma once

#include <cstdint>

#include "actzip/activation.hpp"
#include "actzip/batch_norm.hpp"
#include "actzip/row_norm.hpp"
#include "codec/job.hpp"
#include "ops/job.hpp"

namespace actzip::cuda {

/// Whether this build has these kernels.
bool has_fused_operators() noexcept;

void encode_activated(const Rotated& spec, Activation activation, const codec::EncodeJob& job, void* y);
void activation_backward(const Rotated& spec, Activation activation, const codec::DecodeJob& job,
                         const void* y_gradient);
void product_backward(const Rotated& spec, float scale, const codec::DecodeJob& job, const void* y_gradient);

void relu_backward(const ops::MaskedGradientJob& job);
void dropout_backward(const ops::MaskedGradientJob& job, float factor);

/// Workspaces have ChannelSums::floats() numbers; for backward, GradientNumbers come before them.
void measure_batch(const ChannelRows& shape, const void* x, const BatchNormParameters& parameters, float* norm,
                   float* workspace, const Stream& stream);
void encode_normalized(const Rotated& spec, const ops::NormalizedJob& job);
void decode_normalized(const Rotated& spec, const ops::DenormalizedJob& job);
void batch_norm_backward(const Rotated& spec, const ops::DenormalizedJob& job, NormValues values,
                         const BatchNormGradients& gradients, float* workspace);
void decode_row_normalized(const Rotated& spec, const codec::DecodeJob& job, std::int64_t channels,
                           const RowNorm& norm);

}  // namespace actzip::cuda
