// The CPU as a benchmark device.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <variant>
#include <vector>

#include "bench_device.hpp"
#include "machine.hpp"
#include "openmp_executor.hpp"

namespace actzip::cli {
namespace {

constexpr std::int64_t kChunk = std::int64_t{1} << 16;  // elements; a multiple of 16 bytes for every type

/// Calls body(i) for each i in [0, count) on the executor's threads.
template <class Body>
void for_each(Executor& executor, std::int64_t count, Body body) {
  executor.run(count, [](void* context, std::int64_t i) { (*static_cast<Body*>(context))(i); }, &body);
}

std::size_t round_up(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

void free_memory(std::byte* memory) { std::free(memory); }

/// Draws the floats of a chunk. Each chunk has its own generator, so the data do not depend on the number of threads.
void draw(std::vector<float>& values, Content content, std::int64_t chunk) {
  std::mt19937_64 generator(static_cast<std::uint64_t>(chunk) + 1);
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(generator);
  if (content.kind == Content::Kind::relu) {
    for (float& value : values) value = std::max(value, 0.0F);
  }
}

template <class T>
void draw_integers(T* dst, std::int64_t count, std::int64_t bound, std::int64_t chunk) {
  std::mt19937_64 generator(static_cast<std::uint64_t>(chunk) + 1);
  std::uniform_int_distribution<std::int64_t> uniform(0, bound - 1);
  std::generate_n(dst, count, [&] { return static_cast<T>(uniform(generator)); });
}

/// Converts 16-bit floats with the library's own `cast` codec, whose encoding is exactly an array of such floats.
void store_floats(const std::vector<float>& values, DType dtype, std::byte* dst) {
  if (dtype == DType::f32) {
    std::memcpy(dst, values.data(), values.size() * sizeof(float));
    return;
  }
  const auto count = static_cast<std::int64_t>(values.size());
  const CodecSpec spec = Cast{dtype};
  encode(spec, {values.data(), DType::f32, Shape::contiguous({count})}, {dst, encoded_bytes(spec, DType::f32, count)},
         Seed{0}, Stream{});
}

void load_floats(const std::byte* src, DType dtype, std::vector<double>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<float> floats(values.size());
  if (dtype == DType::f32) {
    std::memcpy(floats.data(), src, floats.size() * sizeof(float));
  } else {
    const CodecSpec spec = Cast{dtype};
    decode(spec, {src, encoded_bytes(spec, DType::f32, count)}, {floats.data(), DType::f32, Shape::contiguous({count})},
           Seed{0}, Stream{});
  }
  std::copy(floats.begin(), floats.end(), values.begin());
}

template <class T>
void load_as(const std::byte* src, std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, src + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
}

void load(const std::byte* src, DType dtype, std::vector<double>& values) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16: return load_floats(src, dtype, values);
    case DType::f64: return load_as<double>(src, values);
    case DType::boolean:
    case DType::u8: return load_as<std::uint8_t>(src, values);
    case DType::i8: return load_as<std::int8_t>(src, values);
    case DType::i16: return load_as<std::int16_t>(src, values);
    case DType::i32: return load_as<std::int32_t>(src, values);
    case DType::i64: return load_as<std::int64_t>(src, values);
  }
}

ErrorSums sums_of(const std::vector<double>& wanted, const std::vector<double>& got) {
  ErrorSums sums;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double error = got[i] - wanted[i];
    sums.error += error * error;
    sums.signal += wanted[i] * wanted[i];
    sums.cross += wanted[i] * error;
  }
  return sums;
}

class CpuDevice final : public BenchDevice {
 public:
  explicit CpuDevice(int threads) : executor_(threads) { facts_ = {cpu_model(), "", cpu_cache_bytes(), threads}; }

  const DeviceFacts& facts() const override { return facts_; }
  Stream stream() override { return Stream::cpu(executor_); }

  Memory allocate(std::size_t bytes) override {
    const std::size_t size = std::max<std::size_t>(round_up(bytes, kAlignment), kAlignment);
    void* const allocated = size <= memory_bytes() ? std::aligned_alloc(kAlignment, size) : nullptr;
    if (allocated == nullptr) throw std::runtime_error(fmt::format("cannot allocate {} bytes of memory", size));
    auto* const memory = static_cast<std::byte*>(allocated);
    for_slices(size, [memory](std::size_t begin, std::size_t end) { std::memset(memory + begin, 0, end - begin); });
    return {memory, free_memory};
  }

  void fill(const TensorView& dst, Content content) override {
    for_chunks(unique_elems(dst.shape), [&](std::int64_t chunk, std::int64_t count) {
      auto* begin =
          static_cast<std::byte*>(dst.data) + static_cast<std::size_t>(chunk * kChunk) * dtype_bytes(dst.dtype);
      if (content.kind != Content::Kind::integers) {
        std::vector<float> values(static_cast<std::size_t>(count));
        draw(values, content, chunk);
        return store_floats(values, dst.dtype, begin);
      }
      switch (dtype_bytes(dst.dtype)) {
        case 1: return draw_integers(reinterpret_cast<std::uint8_t*>(begin), count, content.bound, chunk);
        case 2: return draw_integers(reinterpret_cast<std::int16_t*>(begin), count, content.bound, chunk);
        case 4: return draw_integers(reinterpret_cast<std::int32_t*>(begin), count, content.bound, chunk);
        default: return draw_integers(reinterpret_cast<std::int64_t*>(begin), count, content.bound, chunk);
      }
    });
  }

  ErrorSums compare(const CodecSpec& spec, const ConstTensorView& original, const ConstTensorView& decoded) override {
    const std::int64_t elems = unique_elems(original.shape);
    std::vector<ErrorSums> parts(static_cast<std::size_t>((elems + kChunk - 1) / kChunk));
    for_chunks(elems, [&](std::int64_t chunk, std::int64_t count) {
      const auto at = static_cast<std::size_t>(chunk * kChunk);
      std::vector<double> wanted(static_cast<std::size_t>(count));
      std::vector<double> got(wanted.size());
      load(static_cast<const std::byte*>(original.data) + at * dtype_bytes(original.dtype), original.dtype, wanted);
      load(static_cast<const std::byte*>(decoded.data) + at * dtype_bytes(decoded.dtype), decoded.dtype, got);
      if (const auto* mask = std::get_if<Mask>(&spec)) {
        for (double& x : wanted) x = x <= mask->lo || x >= mask->hi ? mask->off : mask->on;
      }
      parts[static_cast<std::size_t>(chunk)] = sums_of(wanted, got);
    });
    ErrorSums total;
    for (const ErrorSums& part : parts) {
      total.error += part.error;
      total.signal += part.signal;
      total.cross += part.cross;
    }
    return total;
  }

  void copy(std::byte* dst, const std::byte* src, std::size_t bytes) override {
    for_slices(bytes, [=](std::size_t begin, std::size_t end) { std::memcpy(dst + begin, src + begin, end - begin); });
  }

  void launch_nothing() override {
    for_each(executor_, executor_.concurrency(), [](std::int64_t) {});
  }

  double time_ms(const std::function<void()>& work) override {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  static constexpr std::size_t kAlignment = 256;

  template <class Body>
  void for_chunks(std::int64_t elems, Body body) {
    for_each(executor_, (elems + kChunk - 1) / kChunk,
             [&](std::int64_t chunk) { body(chunk, std::min(kChunk, elems - chunk * kChunk)); });
  }

  /// Gives each thread one slice of whole pages.
  template <class Body>
  void for_slices(std::size_t bytes, Body body) {
    const auto threads = static_cast<std::size_t>(executor_.concurrency());
    const std::size_t slice = round_up(std::max<std::size_t>((bytes + threads - 1) / threads, 1), 4096);
    for_each(executor_, executor_.concurrency(), [&](std::int64_t i) {
      const std::size_t begin = std::min(bytes, static_cast<std::size_t>(i) * slice);
      body(begin, std::min(bytes, begin + slice));
    });
  }

  OpenMpExecutor executor_;
  DeviceFacts facts_;
};

}  // namespace

std::unique_ptr<BenchDevice> make_cpu_device(int threads) { return std::make_unique<CpuDevice>(threads); }

}  // namespace actzip::cli
