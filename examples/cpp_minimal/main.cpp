// Encodes a tensor of 1,024 x 1,024 floats with 2 bits per element and decodes it again.
#include <actzip/actzip.hpp>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace {

// Encoded buffers must be aligned to 16 bytes.
struct alignas(16) Block {
  std::byte bytes[16];
};

double relative_squared_error(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0;
  double energy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += std::pow(x[i] - y[i], 2);
    energy += std::pow(x[i], 2);
  }
  return error / energy;
}

}  // namespace

int main() {
  std::vector<float> activations(1024 * 1024);
  for (std::size_t i = 0; i < activations.size(); ++i) activations[i] = std::sin(0.37F * static_cast<float>(i));
  std::vector<float> restored(activations.size());

  const actzip::CodecSpec spec = actzip::parse_spec("rotated:2");
  const actzip::Shape shape = actzip::Shape::contiguous({1024, 1024});
  const actzip::ConstTensorView source(activations.data(), actzip::DType::f32, shape);
  const actzip::TensorView target(restored.data(), actzip::DType::f32, shape);
  const actzip::Seed seed(42);
  const actzip::Stream stream;  // the CPU, on this thread

  const std::size_t size = actzip::encoded_bytes(spec, actzip::DType::f32, shape);
  std::vector<Block> buffer((size + sizeof(Block) - 1) / sizeof(Block));
  std::byte* bytes = buffer.data()->bytes;

  actzip::encode(spec, source, {bytes, size}, seed, stream);
  actzip::decode(spec, {bytes, size}, target, seed, stream);

  const double bits = 8.0 * static_cast<double>(size) / static_cast<double>(activations.size());
  const double error = relative_squared_error(activations, restored);
  std::printf("%s: %zu bytes instead of %zu, %.2f bits an element, relative squared error %.4f\n",
              actzip::to_string(spec).c_str(), size, activations.size() * sizeof(float), bits, error);
  return error < 0.2 ? 0 : 1;
}
