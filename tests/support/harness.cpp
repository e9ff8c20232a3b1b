#include "support/harness.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "support/guarded_buffer.hpp"

namespace actzip::testing {
namespace {
/// Passes a seed as the call requires: by value or by an address on the device.
class PlacedSeed {
 public:
  PlacedSeed(Device device, const Call& call) : memory_(device, sizeof(std::uint64_t)), call_(&call) {
    memory_.write(0, std::as_bytes(std::span(&call.seed, 1)));
  }
  [[nodiscard]] Seed get() const {
    return call_->seed_by_address ? Seed::at(reinterpret_cast<const std::uint64_t*>(memory_.data()))
                                  : Seed(call_->seed);
  }

 private:
  DeviceBuffer memory_;
  const Call* call_;
};
}  // namespace

Bytes Harness::encode(const CodecSpec& spec, const Tensor& src, const Call& call) {
  const GuardedBuffer source(device_, src.memory, call.misaligned, call.fill);
  const GuardedBuffer target(device_, encoded_bytes(spec, src.dtype, src.shape, call.segments), 0, call.fill);
  const std::size_t room = workspace_bytes(spec, src.dtype, unique_elems(src.shape), call.segments);
  GuardedBuffer workspace(device_, room, 0, call.fill);
  workspace.write(Bytes(room));

  const GuardedBuffer bits(device_, call.segment_bits, 1, call.fill);  // such tables need not be aligned
  const PlacedSeed seed(device_, call);
  actzip::encode(spec, ConstTensorView(source.data(), src.dtype, src.shape, device_),
                 ByteSpan(target.data(), target.size(), device_), seed.get(), stream_.get(), call.segments,
                 ByteSpan(workspace.data(), room, device_), ConstByteSpan(bits.data(), bits.size(), device_));
  stream_.synchronize();

  EXPECT_TRUE(source.guards_intact() && source.content() == src.memory) << "encode wrote into its source";
  EXPECT_TRUE(target.guards_intact()) << "encode wrote outside its destination";
  EXPECT_TRUE(workspace.guards_intact()) << "encode wrote outside its workspace";
  EXPECT_TRUE(bits.guards_intact() && bits.content() == call.segment_bits) << "encode wrote into its table";
  overflow_ = 0;
  const Bytes word = workspace.content();
  if (word.size() >= sizeof(overflow_)) std::memcpy(&overflow_, word.data(), sizeof(overflow_));
  return target.content();
}

Bytes Harness::decode(const CodecSpec& spec, const Bytes& encoded, DType dtype, const Shape& shape, const Call& call) {
  const GuardedBuffer source(device_, encoded, 0, call.fill);
  const std::size_t bytes = static_cast<std::size_t>(extent(shape)) * dtype_bytes(dtype);
  const GuardedBuffer target(device_, bytes, call.misaligned, call.fill);

  const PlacedSeed seed(device_, call);
  actzip::decode(spec, ConstByteSpan(source.data(), source.size(), device_),
                 TensorView(target.data(), dtype, shape, device_), seed.get(), stream_.get(), call.segments);
  stream_.synchronize();

  EXPECT_TRUE(source.guards_intact() && source.content() == encoded) << "decode wrote into its source";
  EXPECT_TRUE(target.guards_intact()) << "decode wrote outside its destination";
  return target.content();
}

std::vector<double> Harness::round_trip(const CodecSpec& spec, const Tensor& src, DType out, const Call& call) {
  const Bytes encoded = encode(spec, src, call);
  return to_values(out, decode(spec, encoded, out, compact(src.shape), call));
}

}  // namespace actzip::testing
