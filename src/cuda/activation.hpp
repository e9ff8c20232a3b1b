// Activations on CUDA; jobs are validated and not empty. Without CUDA, stub.cpp stands here and says so.
#pragma once

#include "actzip/activation.hpp"
#include "codec/activation_job.hpp"
#include "codec/job.hpp"

namespace actzip::cuda {

/// Whether this build has them.
bool has_activation() noexcept;

void encode_activated(const Rotated& spec, Activation activation, const codec::EncodeJob& job, void* y);
void activation_backward(const Rotated& spec, Activation activation, const codec::DecodeJob& job,
                         const void* y_gradient);
void product_backward(const Rotated& spec, float scale, const codec::DecodeJob& job, const void* y_gradient);
void relu_backward(const codec::MaskedGradientJob& job);
void dropout_backward(const codec::MaskedGradientJob& job, float factor);

}  // namespace actzip::cuda
