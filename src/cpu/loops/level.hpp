// Every file in this folder includes this: the loops of the level that is being built.
//
// The build defines ACTZIP_CPU_LEVEL, which becomes a namespace. These files must not emit other symbols: the linker
// keeps one copy of an inline function, and that could be a copy that a machine with fewer instructions cannot run. So
// everything is in the level's namespace or always inlined, and standard library templates are not called.
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
