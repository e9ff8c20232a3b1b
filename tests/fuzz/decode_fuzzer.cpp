// Hostile bytes for decode(): for any spec, shape and buffer, it must throw actzip::Error or write only elements of its
// destination. Every buffer has exactly the needed size, so that AddressSanitizer detects the first byte read or
// written outside.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "actzip/actzip.hpp"

namespace {

using actzip::DType;

constexpr std::align_val_t kAlignment{16};

struct Release {
  void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
};
using Memory = std::unique_ptr<std::byte, Release>;

Memory allocate(std::size_t bytes) { return Memory(static_cast<std::byte*>(::operator new(bytes, kAlignment))); }

actzip::CodecSpec choose_spec(FuzzedDataProvider& input) {
  const auto codecs = actzip::codecs();
  const auto variants = codecs[input.ConsumeIntegralInRange<std::size_t>(0, codecs.size() - 1)].variants;
  actzip::CodecSpec spec = variants[input.ConsumeIntegralInRange<std::size_t>(0, variants.size() - 1)];
  const bool wide_stats = input.ConsumeBool();
  const int group = 32 << input.ConsumeIntegralInRange<int>(0, 6);  // up to 2048: some are refused
  if (auto* affine = std::get_if<actzip::Affine>(&spec)) {
    affine->group = actzip::GroupSize(group);
    if (wide_stats) affine->stats = actzip::StatsType::f32;
  }
  if (auto* rotated = std::get_if<actzip::Rotated>(&spec)) {
    rotated->group = actzip::GroupSize(group);
    if (wide_stats) rotated->stats = actzip::StatsType::f32;
  }
  if (auto* dual = std::get_if<actzip::Dual>(&spec)) {
    const auto extent = [&] { return input.ConsumeIntegralInRange<std::int64_t>(1, 20); };
    dual->block = 1 << input.ConsumeIntegralInRange<int>(1, 5);
    dual->size = {extent(), extent(), extent()};
    dual->last = extent();
  }
  return spec;
}

actzip::Shape choose_shape(FuzzedDataProvider& input) {
  actzip::Shape shape;
  shape.rank = input.ConsumeIntegralInRange<int>(0, 3);
  std::int64_t dense = 1;
  for (int d = shape.rank - 1; d >= 0; --d) {
    const auto i = static_cast<std::size_t>(d);
    shape.sizes[i] = input.ConsumeIntegralInRange<std::int64_t>(0, shape.rank == 1 ? 5000 : 40);
    const bool as_dense = input.ConsumeBool();
    shape.strides[i] = as_dense ? dense : input.ConsumeIntegralInRange<std::int64_t>(0, 2000);
    dense *= std::max<std::int64_t>(shape.sizes[i], 1);
  }
  return shape;
}

/// Elements from the first address to the last.
std::size_t extent(const actzip::Shape& shape) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(shape.rank); ++d) {
    if (shape.sizes[d] == 0) return 0;
    last += (shape.sizes[d] - 1) * shape.strides[d];
  }
  return static_cast<std::size_t>(last) + 1;
}

/// The size that decoding expects, if there is one.
std::optional<std::size_t> expected_bytes(const actzip::CodecSpec& spec, DType dtype, const actzip::Shape& shape,
                                          actzip::Segments segments) {
  const auto encodes = actzip::codec_info(spec).encodes;
  const bool same = std::find(encodes.begin(), encodes.end(), dtype) != encodes.end();
  try {
    return actzip::encoded_bytes(spec, same ? dtype : encodes.front(), shape, segments);
  } catch (const actzip::Error&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  const auto levels = actzip::cpu_levels();
  actzip::set_cpu_level(levels[input.ConsumeIntegralInRange<std::size_t>(0, levels.size() - 1)]);
  const actzip::CodecSpec spec = choose_spec(input);
  const DType dtype = static_cast<DType>(input.ConsumeIntegralInRange<int>(0, static_cast<int>(DType::i64)));
  const actzip::Shape shape = choose_shape(input);
  actzip::Segments segments{input.ConsumeBool() ? 1 : input.ConsumeIntegralInRange<std::int64_t>(-1, 50)};
  if (input.ConsumeBool()) segments.total_bits = input.ConsumeIntegralInRange<std::int64_t>(-1, 410);
  const actzip::Seed seed(input.ConsumeIntegral<std::uint64_t>());
  const bool right_size = input.ConsumeProbability<float>() < 0.9F;
  const std::size_t wrong_size = input.ConsumeIntegralInRange<std::size_t>(0, 20000);

  const std::size_t bytes = right_size ? expected_bytes(spec, dtype, shape, segments).value_or(wrong_size) : wrong_size;
  const std::vector<std::uint8_t> content = input.ConsumeRemainingBytes<std::uint8_t>();
  const Memory encoded = allocate(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {  // too short an input is repeated, so that few bytes fill large buffers
    encoded.get()[i] = content.empty() ? std::byte{0xff} : std::byte{content[i % content.size()]};
  }
  const Memory decoded = allocate(extent(shape) * actzip::dtype_bytes(dtype));
  try {
    actzip::decode(spec, actzip::ConstByteSpan(encoded.get(), bytes), actzip::TensorView(decoded.get(), dtype, shape),
                   seed, actzip::Stream(), segments);
  } catch (const actzip::Error&) {
    return 0;
  }
  return 0;
}
