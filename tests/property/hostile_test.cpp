// Buffers that do not fit are refused before anything is read or written. Arbitrary bytes decode safely to some values.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "actzip/codec.hpp"
#include "property/sweep.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/guarded_buffer.hpp"
#include "support/harness.hpp"

namespace actzip::testing {
namespace {

class Hostile : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, Hostile, ::testing::ValuesIn(cpu_backends()), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Hostile, ::testing::ValuesIn(cuda_backends()), backend_name);

std::optional<ErrorCode> code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_FALSE(std::string(error.what()).empty());
    return error.code();
  }
  return std::nullopt;
}

/// Memory for one call on 1,000 elements, larger than needed by 64 bytes.
struct Room {
  Room(Device place, const CodecSpec& codec, DType type)
      : device(place),
        spec(codec),
        dtype(type),
        need(encoded_bytes(codec, type, 1000)),
        encoded(place, need + 64),
        elements(place, 1000 * 8),
        workspace(place, 16) {}

  void encode(std::size_t bytes, std::size_t shift = 0, std::size_t workspace_size = 16, Segments segments = {}) const {
    actzip::encode(spec, ConstTensorView(elements.data(), dtype, line(1000), device),
                   ByteSpan(encoded.data() + shift, bytes, device), Seed(1), stream.get(), segments,
                   ByteSpan(workspace.data(), workspace_size, device));
  }

  void decode(std::size_t bytes, std::size_t shift = 0, Segments segments = {}) const {
    actzip::decode(spec, ConstByteSpan(encoded.data() + shift, bytes, device),
                   TensorView(elements.data(), output_type(spec, dtype), line(1000), device), Seed(1), stream.get(),
                   segments);
  }

  Device device;
  CodecSpec spec;
  DType dtype;
  std::size_t need;
  GuardedBuffer encoded;
  GuardedBuffer elements;
  GuardedBuffer workspace;
  OwnedStream stream{device};
};

TEST_P(Hostile, truncated_and_oversized_buffers_are_refused_and_left_alone) {
  for (const CodecSpec& spec : all_variants()) {
    for (const DType dtype : codec_info(spec).encodes) {
      SCOPED_TRACE(describe(spec, dtype, 1000));
      const Room room(device(), spec, dtype);
      for (const std::size_t bytes :
           {std::size_t{0}, std::size_t{1}, room.need - 16, room.need - 1, room.need + 1, room.need + 16}) {
        ASSERT_EQ(code_of([&] { room.encode(bytes); }), ErrorCode::wrong_size) << bytes;
        ASSERT_EQ(code_of([&] { room.decode(bytes); }), ErrorCode::wrong_size) << bytes;
      }
      room.stream.synchronize();
      ASSERT_EQ(room.encoded.content(), Bytes(room.need + 64, std::byte{0xA5}));
      ASSERT_EQ(room.elements.content(), Bytes(8000, std::byte{0xA5}));
    }
  }
}

TEST_P(Hostile, misaligned_buffers_are_refused) {
  for (const CodecSpec& spec : all_variants()) {
    const Room room(device(), spec, codec_info(spec).encodes.front());
    SCOPED_TRACE(to_string(spec));
    for (const std::size_t shift : {1U, 2U, 4U, 8U, 15U}) {
      EXPECT_EQ(code_of([&] { room.encode(room.need, shift); }), ErrorCode::misaligned) << shift;
      EXPECT_EQ(code_of([&] { room.decode(room.need, shift); }), ErrorCode::misaligned) << shift;
    }
  }
}

TEST_P(Hostile, segments_that_do_not_divide_are_refused) {
  for (const CodecSpec& spec : all_variants()) {
    const Room room(device(), spec, codec_info(spec).encodes.front());
    SCOPED_TRACE(to_string(spec));
    for (const std::int64_t count : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{3}, std::int64_t{1001}}) {
      EXPECT_EQ(code_of([&] { room.encode(room.need, 0, 16, {count}); }), ErrorCode::invalid_segments) << count;
      EXPECT_EQ(code_of([&] { room.decode(room.need, 0, {count}); }), ErrorCode::invalid_segments) << count;
    }
  }
}

TEST_P(Hostile, a_workspace_too_small_is_refused) {
  const Room room(device(), Index{100}, DType::i64);
  EXPECT_EQ(code_of([&] { room.encode(room.need, 0, 0); }), ErrorCode::wrong_size);
  EXPECT_EQ(code_of([&] { room.encode(room.need, 0, 3); }), ErrorCode::wrong_size);
  room.stream.synchronize();
}

TEST_P(Hostile, memory_of_another_device_is_refused) {
  const Device other = device().kind == DeviceKind::cpu ? Device::cuda() : Device::cpu();
  const Room room(device(), Copy{}, DType::f32);
  const ConstTensorView src(room.elements.data(), DType::f32, line(1000), device());
  const ConstTensorView far_src(room.elements.data(), DType::f32, line(1000), other);
  const ByteSpan dst(room.encoded.data(), room.need, device());
  const ByteSpan far_dst(room.encoded.data(), room.need, other);
  const Stream& stream = room.stream.get();
  EXPECT_EQ(code_of([&] { encode(Copy{}, far_src, dst, Seed(1), stream); }), ErrorCode::device_mismatch);
  EXPECT_EQ(code_of([&] { encode(Copy{}, src, far_dst, Seed(1), stream); }), ErrorCode::device_mismatch);
}

TEST_P(Hostile, views_that_nothing_can_work_on_are_refused) {
  const Room room(device(), Copy{}, DType::f32);
  const ByteSpan dst(room.encoded.data(), room.need, device());
  const auto try_shape = [&](const Shape& shape) {
    return code_of([&] {
      const ConstTensorView src(room.elements.data(), DType::f32, shape, device());
      encode(Copy{}, src, dst, Seed(1), room.stream.get());
    });
  };
  EXPECT_EQ(try_shape(strided({-1000}, {1})), ErrorCode::invalid_view);
  EXPECT_EQ(try_shape(strided({1000}, {-1})), ErrorCode::invalid_view);
  Shape deep = line(1000);
  deep.rank = kMaxRank + 1;
  EXPECT_EQ(try_shape(deep), ErrorCode::invalid_view);
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_EQ(try_shape(strided({huge, huge}, {huge, 1})), ErrorCode::invalid_view);
}

TEST_P(Hostile, types_that_a_codec_does_not_take_or_give_are_refused) {
  constexpr std::array kAll{DType::f32, DType::f16, DType::bf16, DType::f64, DType::boolean,
                            DType::u8,  DType::i8,  DType::i16,  DType::i32, DType::i64};
  const auto contains = [](std::span<const DType> list, DType dtype) {
    return std::find(list.begin(), list.end(), dtype) != list.end();
  };
  for (const CodecSpec& spec : registry_variants()) {
    const CodecInfo& info = codec_info(spec);
    const Room room(device(), spec, info.encodes.front());
    for (const DType dtype : kAll) {
      SCOPED_TRACE(describe(spec, dtype, 1000));
      if (!contains(info.encodes, dtype)) {
        EXPECT_EQ(code_of([&] { std::ignore = encoded_bytes(spec, dtype, 1000); }), ErrorCode::unsupported_dtype);
      }
      if (!contains(info.decodes, dtype)) {
        EXPECT_EQ(code_of([&] {
                    decode(spec, ConstByteSpan(room.encoded.data(), room.need, device()),
                           TensorView(room.elements.data(), dtype, line(1000), device()), Seed(1), room.stream.get());
                  }),
                  ErrorCode::unsupported_dtype);
      }
    }
  }
}

/// Whether this spec gives a type that its codec gives in general.
bool gives(const CodecSpec& spec, DType out) {
  if (const auto* rotated = std::get_if<Rotated>(&spec)) return rotated->mask_plane || out != DType::boolean;
  if (const auto* index = std::get_if<Index>(&spec)) return out == DType::i64 || index->bound <= std::int64_t{1} << 31;
  return true;
}

TEST_P(Hostile, random_bytes_decode_to_something_and_depend_on_nothing_outside) {
  Harness harness(device());
  for (const CodecSpec& spec : all_variants()) {
    const CodecInfo& info = codec_info(spec);
    for (const DType out : info.decodes) {
      if (!gives(spec, out)) continue;
      const DType in = std::holds_alternative<Copy>(spec) ? out : info.encodes.front();
      for (const std::int64_t elems : {std::int64_t{1}, std::int64_t{33}, 3 * group_of(spec) + 5}) {
        for (std::uint64_t draw = 0; draw < 3; ++draw) {
          SCOPED_TRACE(describe(spec, out, elems));
          const Bytes bytes = random_bytes(encoded_bytes(spec, in, elems), 81 + draw);
          const Bytes once = harness.decode(spec, bytes, out, line(elems), {.fill = 0xA5});
          ASSERT_TRUE(once == harness.decode(spec, bytes, out, line(elems), {.fill = 0x5A}));
          if (out != DType::boolean || std::holds_alternative<Copy>(spec)) continue;
          for (const std::byte b : once) ASSERT_LE(std::to_integer<int>(b), 1) << "not a boolean";
        }
      }
    }
  }
}

}  // namespace
}  // namespace actzip::testing
