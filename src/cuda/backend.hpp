// The CUDA backend: one pair of functions for each codec. Each launches one kernel on the job's stream. Encoding
// launches one more before it for segments with bits of their own, and for `dual` if dual_encode.cu finds no kernel that
// measures and codes at once. Jobs are validated and not empty. Without CUDA, stub.cpp replaces this backend and
// throws.
#pragma once

#include "actzip/spec.hpp"
#include "codec/job.hpp"

namespace actzip::cuda {

void encode(const Affine& spec, const codec::EncodeJob& job);
void encode(const Rotated& spec, const codec::EncodeJob& job);
void encode(const Mask& spec, const codec::EncodeJob& job);
void encode(const Index& spec, const codec::EncodeJob& job);
void encode(const Cast& spec, const codec::EncodeJob& job);
void encode(const Copy& spec, const codec::EncodeJob& job);
void encode(const Dual& spec, const codec::EncodeJob& job);

void decode(const Affine& spec, const codec::DecodeJob& job);
void decode(const Rotated& spec, const codec::DecodeJob& job);
void decode(const Mask& spec, const codec::DecodeJob& job);
void decode(const Index& spec, const codec::DecodeJob& job);
void decode(const Cast& spec, const codec::DecodeJob& job);
void decode(const Copy& spec, const codec::DecodeJob& job);
void decode(const Dual& spec, const codec::DecodeJob& job);

void weigh_segments(const codec::WeighJob& job);
void plan_segments(const codec::SegmentPlanJob& job);

}  // namespace actzip::cuda
