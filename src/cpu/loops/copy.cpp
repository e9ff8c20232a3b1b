// cast and copy: format.md, section 8. In both, the codes are a dense run of elements.
#include "cpu/loops/elements.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {
namespace {

/// The elements [first, last) of a range of blocks.
Range elements_of(Range blocks, std::int64_t elems) {
  const std::int64_t last = blocks.last * kBlock;
  return {blocks.first * kBlock, last < elems ? last : elems};
}

/// Calls body(first, count) for each block of the range.
template <class Body>
void for_blocks(Range elements, Body body) {
  for (std::int64_t i = elements.first; i < elements.last; i += kBlock) {
    const std::int64_t left = elements.last - i;
    body(i, left < kBlock ? left : std::int64_t{kBlock});
  }
}

template <DType To>
void cast_to(const codec::EncodeJob& job, Range elements) {
  auto* const dst = reinterpret_cast<Storage<To>*>(job.dst);
  alignas(64) float buffer[kBlock];
  FloatReader reader(job.src, elements.first);
  for_blocks(elements, [&](std::int64_t first, std::int64_t count) {
    const float* x = count < kBlock ? reader.read(count, buffer) : reader.next(count, buffer);
    narrow<To, Narrowing::infinite>(x, count, dst + first, 1);
  });
}

template <DType From>
void cast_from(const codec::DecodeJob& job, Range elements) {
  const auto* const src = reinterpret_cast<const Storage<From>*>(job.src);
  alignas(64) float buffer[kBlock];
  FloatWriter<Narrowing::infinite> writer(job.dst, elements.first);
  for_blocks(elements, [&](std::int64_t first, std::int64_t count) {
    widen<From>(src + first, 1, count, buffer);
    writer.write(count, kUnbounded, [&](std::int64_t i) { return load<Floats>(buffer + i); });
  });
}

/// Calls body.operator()<T>() with an unsigned integer type of the element's size.
template <class Body>
void with_element_size(DType dtype, Body body) {
  switch (dtype_bytes(dtype)) {
    case 1: return body.template operator()<std::uint8_t>();
    case 2: return body.template operator()<std::uint16_t>();
    case 4: return body.template operator()<std::uint32_t>();
    default: return body.template operator()<std::uint64_t>();
  }
}

}  // namespace

void encode(const Cast& spec, const codec::EncodeJob& job, math::HashKey /*key*/, Range blocks) {
  const Range elements = elements_of(blocks, job.geometry.elems);
  (spec.to == DType::bf16 ? cast_to<DType::bf16> : cast_to<DType::f16>)(job, elements);
}

void decode(const Cast& spec, const codec::DecodeJob& job, math::HashKey /*key*/, Range blocks) {
  const Range elements = elements_of(blocks, job.geometry.elems);
  (spec.to == DType::bf16 ? cast_from<DType::bf16> : cast_from<DType::f16>)(job, elements);
}

void encode(const Copy& /*spec*/, const codec::EncodeJob& job, math::HashKey /*key*/, Range blocks) {
  const Range elements = elements_of(blocks, job.geometry.elems);
  with_element_size(job.src.dtype, [&]<class T>() {
    const std::int64_t count = elements.last - elements.first;
    auto* const dst = reinterpret_cast<T*>(job.dst) + elements.first;
    const T* const from = Reader<T>(job.src, elements.first).next(count, dst);
    if (from != dst) __builtin_memcpy(dst, from, static_cast<std::size_t>(count) * sizeof(T));
  });
}

void decode(const Copy& /*spec*/, const codec::DecodeJob& job, math::HashKey /*key*/, Range blocks) {
  const Range elements = elements_of(blocks, job.geometry.elems);
  with_element_size(job.dst.dtype, [&]<class T>() {
    Writer<T>(job.dst, elements.first)
        .write(reinterpret_cast<const T*>(job.src) + elements.first, elements.last - elements.first);
  });
}

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
