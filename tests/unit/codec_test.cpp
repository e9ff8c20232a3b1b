#include "actzip/codec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "actzip/backend.hpp"
#include "actzip/registry.hpp"
#include "expect_error.hpp"

namespace actzip {
namespace {

using test::expect_error;

/// Memory that starts at a multiple of 16, for 1,000 elements of any type and what they are encoded to.
struct Fixture {
  alignas(16) std::array<std::byte, 8192> elements{};
  alignas(16) std::array<std::byte, 8192> bytes{};
  alignas(16) std::array<std::byte, 16> words{};
  Stream stream;

  TensorView view(DType dtype = DType::f32, const Shape& shape = Shape::contiguous({1000})) {
    return {elements.data(), dtype, shape};
  }
  ByteSpan encoded(std::size_t size) { return {bytes.data(), size}; }
};

constexpr std::size_t kAffineBytes = 272;  // of 1,000 elements: 4 groups, 63 words of codes

TEST(Codec, EncodedBytesFollowTheFormat) {
  EXPECT_EQ(encoded_bytes(Affine{}, DType::f32, 1000), kAffineBytes);
  EXPECT_EQ(encoded_bytes(Rotated{.mask_plane = true}, DType::bf16, 1000), 16U + 256 + 128);
  EXPECT_EQ(encoded_bytes(Mask{}, DType::boolean, 1000), 128U);
  EXPECT_EQ(encoded_bytes(Index{.bound = 50257}, DType::i64, 1000), 2000U);
  EXPECT_EQ(encoded_bytes(Copy{}, DType::f64, 1001), 8016U);
  EXPECT_EQ(encoded_bytes(Affine{}, DType::f32, 1000, Segments{10}), 48U + 288);
}

TEST(Codec, EncodedBytesOfAShapeCountItsUniqueElements) {
  Shape shape = Shape::contiguous({7, 1000});
  shape.strides[0] = 0;
  EXPECT_EQ(encoded_bytes(Affine{}, DType::f32, shape), kAffineBytes);
  EXPECT_EQ(encoded_bytes(Affine{}, DType::f32, Shape::contiguous({0, 5})), 0U);
}

TEST(Codec, OnlyIndexNeedsAWorkspace) {
  for (const CodecInfo& info : codecs()) {
    for (const CodecSpec& spec : info.variants) {
      EXPECT_EQ(workspace_bytes(spec, info.encodes[0], 1000), info.name == "index" ? 4U : 0U) << info.name;
    }
  }
}

TEST(Codec, InvalidSpecsAreRefusedByEveryCall) {
  Fixture f;
  const CodecSpec spec = Affine{.bits = Bits(9)};
  const std::string fault = ": 'affine:9': bits=9 is not supported by affine (allowed: 1 to 8)";
  const ErrorCode code = ErrorCode::invalid_spec;
  expect_error(code, "encoded_bytes" + fault, [&] { encoded_bytes(spec, DType::f32, 1000); });
  expect_error(code, "workspace_bytes" + fault, [&] { workspace_bytes(spec, DType::f32, 1000); });
  expect_error(code, "encode" + fault, [&] { encode(spec, f.view(), f.encoded(272), Seed(0), f.stream); });
  expect_error(code, "decode" + fault, [&] { decode(spec, f.encoded(272), f.view(), Seed(0), f.stream); });
}

TEST(Codec, ElementTypesThatACodecDoesNotTakeAreRefusedWithTheList) {
  Fixture f;
  const ErrorCode code = ErrorCode::unsupported_dtype;
  expect_error(code, "encoded_bytes: 'affine:2' does not take i64 (allowed: f32, f16, bf16)",
               [] { encoded_bytes(Affine{}, DType::i64, 1000); });
  expect_error(code, "workspace_bytes: 'index' does not take f32 (allowed: i64, i32, i16, u8)",
               [] { workspace_bytes(Index{}, DType::f32, 1000); });
  expect_error(code, "encode: 'mask' does not take f64 (allowed: bool, u8, i8, f32, f16, bf16)",
               [&] { encode(Mask{}, f.view(DType::f64), f.encoded(128), Seed(0), f.stream); });
  expect_error(code, "decode: 'index' does not give i16 (allowed: i64, i32)",
               [&] { decode(Index{}, f.encoded(4000), f.view(DType::i16), Seed(0), f.stream); });
  expect_error(code, "decode: 'cast:bf16' does not give bool (allowed: f32, f16, bf16)",
               [&] { decode(Cast{}, f.encoded(2000), f.view(DType::boolean), Seed(0), f.stream); });
}

TEST(Codec, RotatedGivesBooleansOnlyWithAMaskPlane) {
  Fixture f;
  expect_error(ErrorCode::unsupported_dtype, "decode: 'rotated:2' does not give bool (allowed: f32, f16, bf16)",
               [&] { decode(Rotated{}, f.encoded(272), f.view(DType::boolean), Seed(0), f.stream); });
  expect_error(ErrorCode::unsupported_dtype,
               "decode: 'rotated:2:mask' does not give i8 (allowed: f32, f16, bf16, bool)",
               [&] { decode(Rotated{.mask_plane = true}, f.encoded(400), f.view(DType::i8), Seed(0), f.stream); });
  expect_error(ErrorCode::wrong_size, "decode: src has 0 bytes, 'rotated:2:mask' of 1000 bool elements needs 400",
               [&] { decode(Rotated{.mask_plane = true}, {}, f.view(DType::boolean), Seed(0), f.stream); });
}

TEST(Codec, ElementCountsOutOfRangeAreRefused) {
  const std::int64_t most = std::int64_t{1} << 56;
  const ErrorCode code = ErrorCode::invalid_view;
  expect_error(code, "encoded_bytes: -1 elements (allowed: 0 to 72057594037927936)",
               [] { encoded_bytes(Copy{}, DType::f32, -1); });
  expect_error(code, "workspace_bytes: 72057594037927937 elements (allowed: 0 to 72057594037927936)",
               [&] { workspace_bytes(Copy{}, DType::f32, most + 1); });
  for (const CodecInfo& info : codecs()) {
    for (const CodecSpec& spec : info.variants) {
      for (const DType dtype : info.encodes) {
        EXPECT_GE(encoded_bytes(spec, dtype, most), static_cast<std::size_t>(most / 8)) << to_string(spec);
        EXPECT_LE(encoded_bytes(spec, dtype, most), static_cast<std::size_t>(most) * 8) << to_string(spec);
      }
    }
  }
}

TEST(Codec, SegmentsThatDoNotDivideTheElementsAreRefused) {
  Fixture f;
  const ErrorCode code = ErrorCode::invalid_segments;
  const std::string allowed = " (allowed: 1 or more, dividing the elements)";
  expect_error(code, "encoded_bytes: 0 segments of 1000 elements" + allowed,
               [] { encoded_bytes(Affine{}, DType::f32, 1000, Segments{0}); });
  expect_error(code, "workspace_bytes: -2 segments of 1000 elements" + allowed,
               [] { workspace_bytes(Copy{}, DType::f32, 1000, Segments{-2}); });
  expect_error(code, "encode: 3 segments of 1000 elements" + allowed,
               [&] { encode(Affine{}, f.view(), f.encoded(kAffineBytes), Seed(0), f.stream, Segments{3}); });
  expect_error(code, "decode: 2000 segments of 1000 elements" + allowed,
               [&] { decode(Mask{}, f.encoded(128), f.view(), Seed(0), f.stream, Segments{2000}); });
}

TEST(Codec, SegmentsWhosePaddingLeaves64BitsAreRefused) {
  const std::int64_t most = std::int64_t{1} << 56;
  expect_error(ErrorCode::invalid_segments,
               "encoded_bytes: 72057594037927936 segments make 72057594037927936 groups of 256 elements "
               "(allowed: up to 562949953421312 groups)",
               [&] { encoded_bytes(Rotated{.bits = Bits(4)}, DType::f32, most, Segments{most}); });
  EXPECT_NO_THROW(encoded_bytes(Copy{}, DType::f32, most, Segments{most}));
}

TEST(Codec, SizesOfSegmentsWithBitsOfTheirOwnFollowFromTheTotal) {
  // Table, starts, statistics and codes: 10 and 40 bytes, 10 groups, 66 words.
  EXPECT_EQ(encoded_bytes(Affine{}, DType::f32, 1000, Segments{10, 18}), 16U + 48 + 48 + 272);
  EXPECT_EQ(encoded_bytes(Affine{.bits = Bits(8)}, DType::f32, 1000, Segments{10, 18}), 16U + 48 + 48 + 272);
  EXPECT_EQ(encoded_bytes(Rotated{.mask_plane = true}, DType::bf16, 1024, Segments{4, 7}), 16U + 16 + 16 + 224 + 128);
  EXPECT_EQ(encoded_bytes(Rotated{}, DType::bf16, 0, Segments{4, 7}), 0U);
  constexpr std::int64_t kMany = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(encoded_bytes(Rotated{}, DType::bf16, 0, Segments{kMany, kMany}), 0U);
  EXPECT_EQ(workspace_bytes(Rotated{}, DType::bf16, 1024, Segments{4, 7}), 0U);
}

TEST(Codec, TotalsThatNoTableCanHaveAreRefused) {
  const ErrorCode code = ErrorCode::invalid_segments;
  for (const std::int64_t total : {-1, 9, 41}) {
    expect_error(code,
                 "encoded_bytes: " + std::to_string(total) +
                     " bits in total for 10 segments of 'rotated:2' (allowed: 1 to 4 for each, or 0)",
                 [&] { encoded_bytes(Rotated{}, DType::f32, 1000, Segments{10, total}); });
  }
  expect_error(code, "encoded_bytes: 81 bits in total for 10 segments of 'affine:2' (allowed: 1 to 8 for each, or 0)",
               [&] { encoded_bytes(Affine{}, DType::f32, 1000, Segments{10, 81}); });
  expect_error(code, "encoded_bytes: 'cast:bf16' has no bits for each segment (allowed: affine, rotated)",
               [&] { encoded_bytes(Cast{}, DType::f32, 1000, Segments{10, 20}); });
  expect_error(
      code, "encoded_bytes: 8589934592 words of codes in segments with bits of their own (allowed: up to 4294967295)",
      [&] { encoded_bytes(Rotated{}, DType::f32, std::int64_t{1} << 37, Segments{2, 4}); });
}

TEST(Codec, ATableOfBitsMustFitTheSegments) {
  Fixture f;
  const Segments segments{10, 18};
  const ByteSpan dst = f.encoded(encoded_bytes(Affine{}, DType::f32, 1000, segments));
  for (const std::size_t size : {std::size_t{0}, std::size_t{9}, std::size_t{11}}) {
    expect_error(ErrorCode::wrong_size,
                 "encode: segment_bits has " + std::to_string(size) +
                     " bytes (allowed: 10, one for each segment that has bits of its own)",
                 [&] { encode(Affine{}, f.view(), dst, Seed(0), f.stream, segments, {}, {f.words.data(), size}); });
  }
  expect_error(ErrorCode::wrong_size,
               "encode: segment_bits has 10 bytes (allowed: 0, one for each segment that has bits of its own)", [&] {
                 encode(Affine{}, f.view(), f.encoded(336), Seed(0), f.stream, Segments{10}, {}, {f.words.data(), 10});
               });
  expect_error(ErrorCode::wrong_size, "encode: segment_bits is null and has 10 bytes (allowed: null for no bytes)",
               [&] { encode(Affine{}, f.view(), dst, Seed(0), f.stream, segments, {}, {nullptr, 10}); });
  expect_error(
      ErrorCode::device_mismatch, "encode: segment_bits is on cuda:1, the stream is on cpu (allowed: the same device)",
      [&] { encode(Affine{}, f.view(), dst, Seed(0), f.stream, segments, {}, {f.words.data(), 10, Device::cuda(1)}); });
  EXPECT_NO_THROW(encode(Affine{}, f.view(), dst, Seed(0), f.stream, segments, {}, {f.words.data() + 1, 10}));
}

TEST(Codec, BuffersOfAnotherSizeAreRefused) {
  Fixture f;
  const ErrorCode code = ErrorCode::wrong_size;
  for (const std::size_t size : {std::size_t{0}, kAffineBytes - 1, kAffineBytes + 1}) {
    const std::string given = std::to_string(size);
    const std::string needed = " bytes, 'affine:2' of 1000 f32 elements needs 272";
    expect_error(code, "encode: dst has " + given + needed,
                 [&] { encode(Affine{}, f.view(), f.encoded(size), Seed(0), f.stream); });
    expect_error(code, "decode: src has " + given + needed,
                 [&] { decode(Affine{}, f.encoded(size), f.view(), Seed(0), f.stream); });
  }
  expect_error(code, "encode: dst has 16 bytes, 'copy' of 0 f32 elements needs 0",
               [&] { encode(Copy{}, f.view(DType::f32, Shape::contiguous({0})), f.encoded(16), Seed(0), f.stream); });
}

TEST(Codec, AWorkspaceThatIsTooSmallIsRefused) {
  Fixture f;
  const TensorView view = f.view(DType::i32);
  expect_error(ErrorCode::wrong_size, "encode: workspace has 0 bytes, 'index:bound=256' needs 4",
               [&] { encode(Index{256}, view, f.encoded(1008), Seed(0), f.stream); });
  expect_error(ErrorCode::wrong_size, "encode: workspace is null and has 4 bytes (allowed: null for no bytes)",
               [&] { encode(Index{256}, view, f.encoded(1008), Seed(0), f.stream, {}, {nullptr, 4}); });
}

TEST(Codec, NullPointersAreRefusedUnlessNothingIsThere) {
  Fixture f;
  const TensorView view(nullptr, DType::f32, Shape::contiguous({1000}));
  expect_error(ErrorCode::invalid_view, "encode: src is null and has 1000 elements (allowed: null for no elements)",
               [&] { encode(Affine{}, view, f.encoded(kAffineBytes), Seed(0), f.stream); });
  expect_error(ErrorCode::invalid_view, "decode: dst is null and has 1000 elements (allowed: null for no elements)",
               [&] { decode(Affine{}, f.encoded(kAffineBytes), view, Seed(0), f.stream); });
  expect_error(ErrorCode::wrong_size, "encode: dst is null and has 272 bytes (allowed: null for no bytes)",
               [&] { encode(Affine{}, f.view(), {nullptr, kAffineBytes}, Seed(0), f.stream); });
}

TEST(Codec, MisalignedAddressesAreRefused) {
  Fixture f;
  const ErrorCode code = ErrorCode::misaligned;
  const ByteSpan bytes(f.bytes.data() + 8, kAffineBytes);
  expect_error(code, "encode: dst starts 8 bytes after a multiple of 16 (allowed: a multiple)",
               [&] { encode(Affine{}, f.view(), bytes, Seed(0), f.stream); });
  expect_error(code, "decode: src starts 8 bytes after a multiple of 16 (allowed: a multiple)",
               [&] { decode(Affine{}, bytes, f.view(), Seed(0), f.stream); });
  TensorView view = f.view(DType::bf16);
  view.data = f.elements.data() + 1;
  expect_error(code, "encode: src starts 1 bytes after a multiple of 2 (allowed: a multiple)",
               [&] { encode(Affine{}, view, f.encoded(kAffineBytes), Seed(0), f.stream); });
  expect_error(code, "encode: workspace starts 2 bytes after a multiple of 4 (allowed: a multiple)", [&] {
    encode(Index{256}, f.view(DType::i32), f.encoded(1008), Seed(0), f.stream, {}, {f.words.data() + 2, 4});
  });
  const auto* seed = reinterpret_cast<const std::uint64_t*>(f.words.data() + 4);
  expect_error(code, "decode: the seed's address starts 4 bytes after a multiple of 8 (allowed: a multiple)",
               [&] { decode(Affine{}, f.encoded(kAffineBytes), f.view(), Seed::at(seed), f.stream); });
}

TEST(Codec, TargetsThatOverlapThemselvesAreRefused) {
  Fixture f;
  Shape windows = Shape::contiguous({10, 100});
  windows.strides[0] = 50;
  expect_error(ErrorCode::invalid_view,
               "decode: dst overlaps itself: two indices name one element (allowed: distinct ones)",
               [&] { decode(Affine{}, f.encoded(kAffineBytes), f.view(DType::f32, windows), Seed(0), f.stream); });
}

TEST(Codec, ShapesThatMakeNoSenseAreRefused) {
  Fixture f;
  Shape shape = Shape::contiguous({10, 100});
  shape.sizes[1] = -100;
  const std::string message = "shape: size -100 of dimension 1 is negative (allowed: 0 and up)";
  const TensorView view = f.view(DType::f32, shape);
  const ErrorCode code = ErrorCode::invalid_view;
  expect_error(code, message, [&] { encoded_bytes(Affine{}, DType::f32, shape); });
  expect_error(code, message, [&] { encode(Affine{}, view, f.encoded(kAffineBytes), Seed(0), f.stream); });
  expect_error(code, message, [&] { decode(Affine{}, f.encoded(kAffineBytes), view, Seed(0), f.stream); });
}

TEST(Codec, EverythingMustBeOnTheDeviceOfTheStream) {
  Fixture f;
  const ErrorCode code = ErrorCode::device_mismatch;
  const Device other = Device::cuda(1);
  TensorView view = f.view();
  view.device = other;
  const std::string rest = " is on cuda:1, the stream is on cpu (allowed: the same device)";
  expect_error(code, "encode: src" + rest, [&] { encode(Affine{}, view, f.encoded(kAffineBytes), Seed(0), f.stream); });
  expect_error(code, "decode: dst" + rest, [&] { decode(Affine{}, f.encoded(kAffineBytes), view, Seed(0), f.stream); });
  const ByteSpan bytes(f.bytes.data(), kAffineBytes, other);
  expect_error(code, "encode: dst" + rest, [&] { encode(Affine{}, f.view(), bytes, Seed(0), f.stream); });
  expect_error(code, "decode: src" + rest, [&] { decode(Affine{}, bytes, f.view(), Seed(0), f.stream); });
  expect_error(code, "encode: workspace" + rest, [&] {
    encode(Index{256}, f.view(DType::i32), f.encoded(1008), Seed(0), f.stream, {}, {f.words.data(), 4, other});
  });
  expect_error(code, "encode: src is on cpu, the stream is on cuda:0 (allowed: the same device)",
               [&] { encode(Affine{}, f.view(), f.encoded(kAffineBytes), Seed(0), Stream::cuda(nullptr)); });
}

TEST(Codec, ADeviceThatIsNotThereIsReported) {
  if (cuda_status().problem.empty()) GTEST_SKIP() << "this machine has the device";
  Fixture f;
  const Device device = Device::cuda();
  TensorView view = f.view();
  view.device = device;
  const ByteSpan bytes(f.bytes.data(), 4000, device);
  const auto is_unavailable = [](const Error& error) { return error.code() == ErrorCode::backend_unavailable; };
  EXPECT_THAT([&] { encode(Copy{}, view, bytes, Seed(0), Stream::cuda(nullptr)); },
              testing::Throws<Error>(testing::Truly(is_unavailable)));
  EXPECT_THAT([&] { decode(Copy{}, bytes, view, Seed(0), Stream::cuda(nullptr)); },
              testing::Throws<Error>(testing::Truly(is_unavailable)));
}

TEST(Codec, EmptyTensorsNeedNoMemory) {
  Stream stream;
  alignas(4) std::array<std::byte, 4> word{};
  for (const CodecInfo& info : codecs()) {
    for (const CodecSpec& spec : info.variants) {
      const Shape empty = Shape::contiguous({3, 0});
      const ConstTensorView source(nullptr, info.encodes[0], empty);
      const TensorView target(nullptr, info.decodes[0], empty);
      EXPECT_EQ(encoded_bytes(spec, info.encodes[0], empty), 0U);
      EXPECT_NO_THROW(encode(spec, source, {}, Seed(0), stream, Segments{5}, {word.data(), 4})) << info.name;
      EXPECT_NO_THROW(decode(spec, {}, target, Seed(0), stream)) << info.name;
    }
  }
}

TEST(Codec, AGappedTensorComesBackDense) {
  Fixture f;
  Stream stream;
  std::vector<std::int32_t> source(40);
  std::iota(source.begin(), source.end(), 0);
  Shape shape = Shape::contiguous({3, 4});  // every other element of rows of ten, transposed
  shape.strides = {2, 10};
  encode(Copy{}, ConstTensorView(source.data(), DType::i32, shape), f.encoded(48), Seed(0), stream);
  std::vector<std::int32_t> target(12, -1);
  decode(Copy{}, f.encoded(48), TensorView(target.data(), DType::i32, compact(shape)), Seed(0), stream);
  EXPECT_EQ(target, (std::vector<std::int32_t>{0, 2, 4, 10, 12, 14, 20, 22, 24, 30, 32, 34}));
}

}  // namespace
}  // namespace actzip
