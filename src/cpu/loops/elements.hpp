// Reads the elements of a view as binary32, and writes them: dense ones by vectors, others one by one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/loops/cursor.hpp"
#include "cpu/loops/simd.hpp"
#include "math/element.hpp"

namespace actzip::cpu::ACTZIP_CPU_LEVEL {

template <DType Type>
using Storage = typename math::Element<Type>::Storage;

/// Calls body.operator()<DType>(). `dtype` is a floating type that codecs compute with.
template <class Body>
__attribute__((always_inline)) inline void with_float_type(DType dtype, const Body& body) {
  if (dtype == DType::f32) return body.template operator()<DType::f32>();
  if (dtype == DType::f16) return body.template operator()<DType::f16>();
  body.template operator()<DType::bf16>();
}

template <DType Type>
inline constexpr float kLargest = math::Element<Type>::kLargest;
template <>
inline constexpr float kLargest<DType::f32> = 0x1.fffffep127F;

template <DType Type>
inline Floats load_widened(const Storage<Type>* from) {
  if constexpr (Type == DType::f32) return load<Floats>(from);
  if constexpr (Type == DType::f16) return load_f16(from);
  if constexpr (Type == DType::bf16) return floats_of(load_halves(from) << 16);
}

/// The lanes in the form in which they are stored. No lane may be NaN.
template <DType Type>
inline auto rounded(Floats x) {
  if constexpr (Type == DType::f32) {
    return x;
  } else if constexpr (Type == DType::f16) {
    return to_f16(x);
  } else {
    const Words bits = bits_of(x);
    return to_halves((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
  }
}

/// The same for all lanes: a NaN becomes the canonical one. All bits of kNanF32 are in the upper half, so rounding
/// keeps them.
template <DType Type>
inline auto canonical(Floats x) {
  return rounded<Type>(x != x ? floats_of(broadcast(math::kNanF32)) : x);
}

/// Numbers beyond the type's largest become the largest. NaN stays.
template <DType Type>
inline Floats saturated(Floats x) {
  if constexpr (Type == DType::f32) return x;
  return max(broadcast(-kLargest<Type>), min(broadcast(kLargest<Type>), x));
}

/// Widens `count` elements that are `stride` apart.
template <DType Type>
inline void widen(const Storage<Type>* from, std::int64_t stride, std::int64_t count, float* to) {
  std::int64_t i = 0;
  if (stride == 1) {
    for (; i + kLanes <= count; i += kLanes) store(to + i, load_widened<Type>(from + i));
  }
  for (; i < count; ++i) to[i] = math::Element<Type>::widen(from[i * stride]);
}

/// A bound for values of which nothing is known.
inline constexpr float kUnbounded = __builtin_bit_cast(float, math::kNanF32);

/// How values are narrowed.
enum class Narrowing : std::uint8_t {
  rounded,    ///< all are finite and none is beyond the type's largest
  saturated,  ///< a number beyond it becomes the largest
  infinite,   ///< a number beyond it becomes an infinity
};

template <DType Type, Narrowing How>
inline auto narrowed(Floats x) {
  if constexpr (How == Narrowing::rounded) return rounded<Type>(x);
  return canonical<Type>(How == Narrowing::saturated ? saturated<Type>(x) : x);
}

/// Narrows `count` values to elements that are `stride` apart. Behind the last value, `from` must be readable up to a
/// whole vector.
template <DType Type, Narrowing How>
inline void narrow(const float* from, std::int64_t count, Storage<Type>* to, std::int64_t stride) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const auto values = narrowed<Type, How>(load<Floats>(from + i));
    if (stride == 1 && i + kLanes <= count) {
      store(to + i, values);
    } else {
      for (std::int64_t j = 0; j < kLanes && i + j < count; ++j) to[(i + j) * stride] = values[j];
    }
  }
}

/// Reads elements in their stored form, piece by piece, starting at element `first`.
template <class T>
class Reader {
 public:
  Reader(const codec::ElementView<const void*>& src, std::int64_t first)
      : data_(static_cast<const T*>(src.data)), dense_(src.order.dense()), cursor_(src.order, first) {}

  /// Returns the next `count` elements: in place if the view is dense, otherwise copied to `buffer`.
  const T* next(std::int64_t count, T* buffer) {
    const T* result = buffer;
    cursor_.advance(count, [&](std::int64_t offset, std::int64_t stride, std::int64_t length) {
      const T* from = data_ + offset;
      if (dense_) {
        result = from;
        return;
      }
      for (std::int64_t i = 0; i < length; ++i) buffer[i] = from[i * stride];
      buffer += length;
    });
    return result;
  }

 private:
  const T* data_;
  bool dense_;
  Cursor cursor_;
};

/// Writes elements in their stored form, piece by piece, starting at element `first`.
template <class T>
class Writer {
 public:
  Writer(const codec::ElementView<void*>& dst, std::int64_t first)
      : data_(static_cast<T*>(dst.data)), cursor_(dst.order, first) {}

  void write(const T* values, std::int64_t count) {
    cursor_.advance(count, [&](std::int64_t offset, std::int64_t stride, std::int64_t length) {
      T* const to = data_ + offset;
      if (stride == 1) {
        __builtin_memcpy(to, values, static_cast<std::size_t>(length) * sizeof(T));
      } else {
        for (std::int64_t i = 0; i < length; ++i) to[i * stride] = values[i];
      }
      values += length;
    });
  }

 private:
  T* data_;
  Cursor cursor_;
};

/// Reads elements as floats, piece by piece, starting at element `first`.
class FloatReader {
 public:
  FloatReader(const codec::ElementView<const void*>& src, std::int64_t first)
      : data_(src.data),
        dtype_(src.dtype),
        in_place_(src.dtype == DType::f32 && src.order.dense()),
        cursor_(src.order, first) {}

  /// Returns the next `count` elements: in place if the view is dense and f32, otherwise copied to `buffer`.
  const float* next(std::int64_t count, float* buffer) {
    if (!in_place_) return read(count, buffer);
    const float* result = nullptr;
    cursor_.advance(count, [&](std::int64_t offset, std::int64_t, std::int64_t) {
      result = static_cast<const float*>(data_) + offset;
    });
    return result;
  }

  /// Returns the next `count` elements, always in `buffer`.
  __attribute__((noinline)) const float* read(std::int64_t count, float* buffer) {
    with_float_type(dtype_, [&]<DType Type>() { read_as<Type>(count, buffer); });
    return buffer;
  }

 private:
  template <DType Type>
  void read_as(std::int64_t count, float* to) {
    cursor_.advance(count, [&](std::int64_t offset, std::int64_t stride, std::int64_t length) {
      widen<Type>(static_cast<const Storage<Type>*>(data_) + offset, stride, length, to);
      to += length;
    });
  }

  const void* data_;
  DType dtype_;
  bool in_place_;
  Cursor cursor_;
};

/// Outputs of at least this size are written past the cache: they would not stay in it, and this saves reading the old
/// contents.
inline constexpr std::int64_t kPastCacheBytes = std::int64_t{16} << 20;

/// Writes floats as elements, piece by piece, starting at element `first`. `Beyond` says what happens to numbers beyond
/// the type's largest.
template <Narrowing Beyond = Narrowing::saturated>
class FloatWriter {
 public:
  FloatWriter(const codec::ElementView<void*>& dst, std::int64_t first)
      : data_(dst.data),
        dtype_(dst.dtype),
        dense_(dst.order.dense()),
        large_(dst.order.elems * static_cast<std::int64_t>(dtype_bytes(dst.dtype)) >= kPastCacheBytes),
        cursor_(dst.order, first) {}
  FloatWriter(const FloatWriter&) = delete;
  FloatWriter& operator=(const FloatWriter&) = delete;
  ~FloatWriter() {
    if (large_) finish_streams();
  }

  /// Writes `count` elements, at most kBlock. values(i) returns the vector that starts at element i. No magnitude is
  /// above `bound`, unless that is NaN: then nothing is known.
  template <class Values>
  void write(std::int64_t count, float bound, Values values) {
    with_float_type(dtype_, [&]<DType Type>() {
      if (bound <= kLargest<Type>) return write_as<Type, Narrowing::rounded>(count, values);
      write_as<Type, Beyond>(count, values);
    });
  }

 private:
  template <DType Type, Narrowing How, class Values>
  void write_as(std::int64_t count, Values values) {
    const bool whole = dense_ && count % kLanes == 0;
    if (!whole) {
      for (std::int64_t i = 0; i < count; i += kLanes) store(buffer_ + i, values(i));
    }
    const float* from = buffer_;
    cursor_.advance(count, [&](std::int64_t offset, std::int64_t stride, std::int64_t length) {
      auto* const to = static_cast<Storage<Type>*>(data_) + offset;
      if (!whole) {
        narrow<Type, How>(from, length, to, stride);
        from += length;
      } else if (large_ && reinterpret_cast<std::uintptr_t>(to) % (kLanes * sizeof(*to)) == 0) {
        for (std::int64_t i = 0; i < length; i += kLanes) stream(to + i, narrowed<Type, How>(values(i)));
      } else {
        for (std::int64_t i = 0; i < length; i += kLanes) store(to + i, narrowed<Type, How>(values(i)));
      }
    });
  }

  void* data_;
  DType dtype_;
  bool dense_;
  bool large_;
  Cursor cursor_;
  alignas(64) float buffer_[kBlock + kLanes];
};

}  // namespace actzip::cpu::ACTZIP_CPU_LEVEL
