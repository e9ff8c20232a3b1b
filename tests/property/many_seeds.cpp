#include "property/many_seeds.hpp"

#include <algorithm>

#include "actzip/codec.hpp"

namespace actzip::testing {

void decode_many(Device device, const CodecSpec& spec, const Tensor& src, DType out, std::int64_t seeds,
                 const std::function<void(const std::vector<double>&)>& use, Segments segments,
                 const Bytes& segment_bits) {
  // A batch of seeds is enqueued before anything is read back: waiting for a GPU after each would take most of the
  // time.
  constexpr std::size_t kBatchBytes = std::size_t{1} << 24;
  const Shape shape = compact(src.shape);
  const std::size_t encoded_size = encoded_bytes(spec, src.dtype, src.shape, segments);
  const std::size_t decoded_size = static_cast<std::size_t>(extent(shape)) * dtype_bytes(out);
  const std::size_t batch = std::max<std::size_t>(1, kBatchBytes / decoded_size);
  const OwnedStream stream(device);
  DeviceBuffer source(device, src.memory.size());
  source.write(0, src.memory);
  DeviceBuffer bits(device, segment_bits.size());
  bits.write(0, segment_bits);
  const DeviceBuffer encoded(device, encoded_size);
  const DeviceBuffer decoded(device, decoded_size * batch);

  for (auto first = std::size_t{0}; first < static_cast<std::size_t>(seeds); first += batch) {
    const std::size_t count = std::min(batch, static_cast<std::size_t>(seeds) - first);
    for (std::size_t i = 0; i < count; ++i) {
      const Seed seed(1 + first + i);
      encode(spec, ConstTensorView(source.data(), src.dtype, src.shape, device),
             ByteSpan(encoded.data(), encoded_size, device), seed, stream.get(), segments, {},
             ConstByteSpan(bits.data(), bits.size(), device));
      decode(spec, ConstByteSpan(encoded.data(), encoded_size, device),
             TensorView(decoded.data() + i * decoded_size, out, shape, device), seed, stream.get(), segments);
    }
    stream.synchronize();
    const Bytes draws = decoded.read(0, count * decoded_size);
    for (std::size_t i = 0; i < count; ++i) {
      use(to_values(out, std::span(draws).subspan(i * decoded_size, decoded_size)));
    }
  }
}

void MomentSums::add(const std::vector<double>& draw) {
  if (origin_.empty()) {
    origin_ = draw;
    sum_.resize(draw.size());
    squares_.resize(draw.size());
  }
  for (std::size_t i = 0; i < draw.size(); ++i) {
    const double deviation = draw[i] - origin_[i];
    sum_[i] += deviation;
    squares_[i] += deviation * deviation;
  }
  count_ += 1.0;
}

Moments MomentSums::result() const {
  Moments result{origin_, squares_};
  for (std::size_t i = 0; i < origin_.size(); ++i) {
    const double mean = sum_[i] / count_;
    result.mean[i] += mean;
    result.variance[i] = (squares_[i] - count_ * mean * mean) / (count_ - 1.0);
  }
  return result;
}

Moments moments_over_seeds(Device device, const CodecSpec& spec, const Tensor& src, DType out, std::int64_t seeds) {
  MomentSums sums;
  decode_many(device, spec, src, out, seeds, [&](const std::vector<double>& draw) { sums.add(draw); });
  return sums.result();
}

}  // namespace actzip::testing
