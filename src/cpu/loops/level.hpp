// What every file in this folder begins with: the loops of the level that is being built.
//
// The build names the level, ACTZIP_CPU_LEVEL, and it becomes a namespace. Nothing else may leave these files: the
// linker keeps one copy of an inline function, and it could be the one that a lesser machine cannot run. So everything
// stands in the level's namespace or is always inlined, and templates of the standard library are not called.
#pragma once

#include "cpu/loops.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {

void encode(const Affine& spec, const codec::EncodeJob& job, math::HashKey key, Range groups);
void encode(const Rotated& spec, const codec::EncodeJob& job, math::HashKey key, Range groups);
void encode(const Mask& spec, const codec::EncodeJob& job, math::HashKey key, Range blocks);
void encode(const Index& spec, const codec::EncodeJob& job, math::HashKey key, Range blocks);
void encode(const Cast& spec, const codec::EncodeJob& job, math::HashKey key, Range blocks);
void encode(const Copy& spec, const codec::EncodeJob& job, math::HashKey key, Range blocks);

void decode(const Affine& spec, const codec::DecodeJob& job, math::HashKey key, Range groups);
void decode(const Rotated& spec, const codec::DecodeJob& job, math::HashKey key, Range groups);
void decode(const Mask& spec, const codec::DecodeJob& job, math::HashKey key, Range blocks);
void decode(const Index& spec, const codec::DecodeJob& job, math::HashKey key, Range blocks);
void decode(const Cast& spec, const codec::DecodeJob& job, math::HashKey key, Range blocks);
void decode(const Copy& spec, const codec::DecodeJob& job, math::HashKey key, Range blocks);

void measure(const Dual& spec, const codec::EncodeJob& job, Range samples, float* room);
void encode(const Dual& spec, const codec::EncodeJob& job, math::HashKey key, Range blocks);
void decode(const Dual& spec, const codec::DecodeJob& job, math::HashKey key, Range blocks);

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
