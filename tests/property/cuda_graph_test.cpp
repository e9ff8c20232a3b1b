// Every encode and decode can be recorded into a CUDA graph and replayed with another seed and other data. This shows
// that none of them synchronises, allocates, or reads the seed too early.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>

#include "actzip/codec.hpp"
#include "property/sweep.hpp"
#include "support/backends.hpp"
#include "support/generators.hpp"
#include "support/harness.hpp"

namespace actzip::testing {
namespace {

class CudaGraphs : public CudaTest {};

/// One recorded pair of calls with the memory it works on.
class Recorded {
 public:
  Recorded(const CodecSpec& spec, DType dtype, const Shape& shape, Segments segments = {})
      : spec_(spec),
        segments_(segments),
        dtype_(dtype),
        out_(output_type(spec, dtype)),
        shape_(shape),
        source_(kDevice, static_cast<std::size_t>(extent(shape)) * dtype_bytes(dtype)),
        encoded_(kDevice, encoded_bytes(spec, dtype, shape, segments)),
        decoded_(kDevice, static_cast<std::size_t>(extent(compact(shape))) * dtype_bytes(out_)) {
    decoded_.fill(0xA5);
    word_.fill(0);
    call();  // a kernel is loaded at its first launch, which must not fall into the recording
    stream_.synchronize();
    graph_.emplace(stream_, [this] { call(); });
  }

  void replay(const Bytes& elements, std::uint64_t seed, const Bytes& segment_bits = {}) {
    source_.write(0, elements);
    table_.write(0, segment_bits);
    seed_.write(0, std::as_bytes(std::span(&seed, 1)));
    graph_->launch();
    stream_.synchronize();
  }

  [[nodiscard]] Bytes encoded() const { return encoded_.read(0, encoded_.size()); }
  [[nodiscard]] Bytes decoded() const { return decoded_.read(0, decoded_.size()); }
  [[nodiscard]] DType out() const { return out_; }

 private:
  static constexpr Device kDevice = Device::cuda();

  void call() {
    const Seed seed = Seed::at(reinterpret_cast<const std::uint64_t*>(seed_.data()));
    encode(spec_, ConstTensorView(source_.data(), dtype_, shape_, kDevice),
           ByteSpan(encoded_.data(), encoded_.size(), kDevice), seed, stream_.get(), segments_,
           ByteSpan(word_.data(), word_.size(), kDevice), ConstByteSpan(table_.data(), table_.size(), kDevice));
    decode(spec_, ConstByteSpan(encoded_.data(), encoded_.size(), kDevice),
           TensorView(decoded_.data(), out_, compact(shape_), kDevice), seed, stream_.get(), segments_);
  }

  CodecSpec spec_;
  Segments segments_;
  DType dtype_;
  DType out_;
  Shape shape_;
  DeviceBuffer source_;
  DeviceBuffer encoded_;
  DeviceBuffer decoded_;
  DeviceBuffer table_{kDevice, segments_.total_bits == 0 ? 0 : static_cast<std::size_t>(segments_.count)};
  DeviceBuffer seed_{kDevice, sizeof(std::uint64_t)};
  DeviceBuffer word_{kDevice, 16};
  OwnedStream stream_{kDevice};
  std::optional<CudaGraph> graph_;
};

void check_replays(const CodecSpec& spec, DType dtype, const Shape& shape) {
  SCOPED_TRACE(describe(spec, dtype, unique_elems(shape)));
  Recorded recorded(spec, dtype, shape);
  Harness harness(Device::cuda());
  for (const std::uint64_t seed : {std::uint64_t{3}, std::uint64_t{4}, std::uint64_t{1} << 40}) {
    const Tensor src{dtype, shape, sample(spec, dtype, extent(shape), seed)};
    recorded.replay(src.memory, seed);
    const Bytes expected = harness.encode(spec, src, {.seed = seed});
    ASSERT_TRUE(recorded.encoded() == expected) << "seed " << seed;
    ASSERT_TRUE(recorded.decoded() == harness.decode(spec, expected, recorded.out(), compact(shape), {.seed = seed}));
  }
}

TEST_F(CudaGraphs, hold_every_variant_of_every_type) {
  for (const CodecSpec& spec : all_variants()) {
    for (const DType dtype : codec_info(spec).encodes) check_replays(spec, dtype, line(3 * group_of(spec) + 5));
  }
}

TEST_F(CudaGraphs, hold_gathering_calls_too) {
  for (const CodecSpec& spec : registry_variants()) {
    check_replays(spec, codec_info(spec).encodes.front(), strided({70, 300}, {320, 1}));
  }
}

TEST_F(CudaGraphs, read_the_bits_of_segments_when_they_run) {
  const Segments segments{7, 16};
  for (const CodecSpec& spec : {CodecSpec(Affine{}), CodecSpec(Rotated{})}) {
    for (const std::int64_t length : {100, 2048}) {
      SCOPED_TRACE(describe(spec, DType::bf16, length));
      Recorded recorded(spec, DType::bf16, line(7 * length), segments);
      Harness harness(Device::cuda());
      for (const std::uint64_t seed : {std::uint64_t{5}, std::uint64_t{6}}) {
        const Tensor src = dense(DType::bf16, sample(spec, DType::bf16, 7 * length, seed));
        const Bytes table = random_bytes(7, seed);
        recorded.replay(src.memory, seed, table);
        const Call call{.seed = seed, .segments = segments, .segment_bits = table};
        const Bytes expected = harness.encode(spec, src, call);
        ASSERT_TRUE(recorded.encoded() == expected) << "seed " << seed;
        ASSERT_TRUE(recorded.decoded() == harness.decode(spec, expected, DType::bf16, src.shape, call));
      }
    }
  }
}

/// The recording itself must be able to fail, or the tests above show nothing.
TEST_F(CudaGraphs, refuse_a_synchronisation) {
  const OwnedStream stream(Device::cuda());
  EXPECT_THROW(CudaGraph(stream, [&] { stream.synchronize(); }), std::runtime_error);
}

}  // namespace
}  // namespace actzip::testing
