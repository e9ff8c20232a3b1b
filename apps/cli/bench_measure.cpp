#include "bench_measure.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <variant>
#include <vector>

namespace actzip::cli {
namespace {

constexpr Seed kSeed{0x5eed};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Whether tensors of this type are filled with real numbers.
bool is_real(DType dtype) { return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }

/// Data as after a ReLU if the codec treats zeros specially, Gaussian data otherwise; integers for other types.
Content content_of(const BenchCase& bench_case) {
  if (const auto* index = std::get_if<Index>(&bench_case.spec)) {
    const int value_bits = std::min(8 * static_cast<int>(dtype_bytes(bench_case.dtype)) - 1, 62);
    return {Content::Kind::integers, std::min(index->bound, std::int64_t{1} << value_bits)};
  }
  if (!is_real(bench_case.dtype)) return {Content::Kind::integers, 2};
  const auto* rotated = std::get_if<Rotated>(&bench_case.spec);
  const bool masked = std::holds_alternative<Mask>(bench_case.spec) || (rotated != nullptr && rotated->mask_plane);
  return {masked ? Content::Kind::relu : Content::Kind::gaussian, 0};
}

int bits_of_segment(const BenchCase& bench_case, std::int64_t s) {
  return bench_case.segment_bits[static_cast<std::size_t>(s) % bench_case.segment_bits.size()];
}

/// The bits of each segment, one byte each; empty without segment_bits.
std::vector<std::byte> table_of(const BenchCase& bench_case) {
  std::vector<std::byte> table;
  if (bench_case.segment_bits.empty()) return table;
  for (std::int64_t s = 0; s < bench_case.segments().count; ++s) {
    table.push_back(static_cast<std::byte>(bits_of_segment(bench_case, s)));
  }
  return table;
}

/// The buffers of one round trip, and the three operations that are timed: encode, decode and copy.
class RoundTrip {
 public:
  RoundTrip(BenchDevice& device, const BenchCase& bench_case)
      : device_(&device),
        spec_(bench_case.spec),
        segments_(bench_case.segments()),
        source_bytes_(static_cast<std::size_t>(bench_case.elems) * dtype_bytes(bench_case.dtype)),
        encoded_bytes_(actzip::encoded_bytes(spec_, bench_case.dtype, bench_case.elems, segments_)),
        workspace_bytes_(workspace_bytes(spec_, bench_case.dtype, bench_case.elems, segments_)),
        table_bytes_(bench_case.segment_bits.empty() ? 0 : static_cast<std::size_t>(segments_.count)),
        source_(device.allocate(source_bytes_)),
        encoded_(device.allocate(encoded_bytes_)),
        workspace_(device.allocate(workspace_bytes_)),
        table_(device.allocate(table_bytes_)),
        decoded_(nullptr, nullptr) {
    const DType target = decoded_type(spec_, bench_case.dtype);
    decoded_bytes_ = static_cast<std::size_t>(bench_case.elems) * dtype_bytes(target);
    decoded_ = device.allocate(std::max(decoded_bytes_, source_bytes_));  // also the target of the plain copy
    const Shape shape = Shape::contiguous({bench_case.elems});
    const Device place = device.stream().device();
    source_view_ = {source_.get(), bench_case.dtype, shape, place};
    decoded_view_ = {decoded_.get(), target, shape, place};
    if (table_bytes_ != 0) device.copy(table_.get(), table_of(bench_case).data(), table_bytes_);
  }

  void fill(Content content) const { device_->fill(source_view_, content); }
  void fill_from(const RoundTrip& other) const { device_->copy(source_.get(), other.source_.get(), source_bytes_); }

  void encode() const {
    const Stream stream = device_->stream();
    actzip::encode(spec_, source_view_, {encoded_.get(), encoded_bytes_, stream.device()}, kSeed, stream, segments_,
                   {workspace_.get(), workspace_bytes_, stream.device()},
                   {table_.get(), table_bytes_, stream.device()});
  }
  void decode() const {
    const Stream stream = device_->stream();
    actzip::decode(spec_, {encoded_.get(), encoded_bytes_, stream.device()}, decoded_view_, kSeed, stream, segments_);
  }
  void copy() const { device_->copy(decoded_.get(), source_.get(), source_bytes_); }

  [[nodiscard]] Fidelity fidelity() const {
    const ErrorSums sums = device_->compare(spec_for_compare(), source_view_, decoded_view_);
    if (sums.signal == 0) return {sums.error, 0};  // all zeros: report the absolute error
    return {sums.error / sums.signal, sums.cross / sums.signal};
  }

  [[nodiscard]] std::size_t source_bytes() const { return source_bytes_; }
  [[nodiscard]] std::size_t encoded_bytes() const { return encoded_bytes_; }
  [[nodiscard]] std::size_t decoded_bytes() const { return decoded_bytes_; }

 private:
  /// A mask ignores its interval for sources that are not real numbers, and its values when it decodes to booleans.
  [[nodiscard]] CodecSpec spec_for_compare() const {
    if (!std::holds_alternative<Mask>(spec_)) return spec_;
    Mask mask = std::get<Mask>(spec_);
    if (!is_real(source_view_.dtype)) mask = {.off = mask.off, .on = mask.on};
    if (decoded_view_.dtype == DType::boolean) mask = {.lo = mask.lo, .hi = mask.hi};
    return mask;
  }

  BenchDevice* device_;
  CodecSpec spec_;
  Segments segments_;
  std::size_t source_bytes_;
  std::size_t encoded_bytes_;
  std::size_t workspace_bytes_;
  std::size_t table_bytes_;
  std::size_t decoded_bytes_ = 0;
  Memory source_;
  Memory encoded_;
  Memory workspace_;
  Memory table_;
  Memory decoded_;
  TensorView source_view_;
  TensorView decoded_view_;
};

using Step = void (RoundTrip::*)() const;

/// Whether the registry's expected error applies: it holds for Gaussian data in groups of 256.
bool is_tabulated(const BenchCase& bench_case) {
  if (content_of(bench_case).kind != Content::Kind::gaussian) return false;
  if (const auto* affine = std::get_if<Affine>(&bench_case.spec)) return affine->group == GroupSize{256};
  if (const auto* rotated = std::get_if<Rotated>(&bench_case.spec)) return rotated->group == GroupSize{256};
  if (const auto* dual = std::get_if<Dual>(&bench_case.spec)) return dual->size == Dual{}.size && dual->last == 1;
  return true;
}

void check_fidelity(const BenchCase& bench_case, Fidelity fidelity) {
  constexpr std::int64_t kManyElems = 1 << 16;  // smaller samples deviate too much from the expectation
  constexpr double kTypeError = 4e-6;           // upper bound of the error added by rounding to bf16
  const double expected = bench_case.expected_error();
  const bool exact = traits(bench_case.spec).exact &&
                     !std::holds_alternative<Mask>(bench_case.spec);  // a mask's values may be rounded
  const double slack = is_tabulated(bench_case) && bench_case.elems >= kManyElems ? 1.1 : 2.0;
  const double most = exact ? 0.0 : slack * expected + kTypeError;
  const double least = slack == 2.0 ? 0.0 : expected / slack - kTypeError;
  const double error = fidelity.rel_sq_error;
  if (std::isfinite(error) && error >= least && error <= most) return;
  throw std::runtime_error(
      fmt::format("{} of {} {} elements has a relative squared error of {:.4g} after a round trip; {:.4g} was expected",
                  bench_case.name(), bench_case.elems, to_string(bench_case.dtype), error, expected));
}

/// Allocates enough sets of buffers that each set has left the cache before it is used again (16 at most). Every set is
/// encoded and decoded once.
std::vector<RoundTrip> make_sets(BenchDevice& device, const BenchCase& bench_case) {
  constexpr std::size_t kMostSets = 16;
  const std::size_t bytes =
      std::max<std::size_t>(static_cast<std::size_t>(bench_case.elems) * dtype_bytes(bench_case.dtype), 1);
  const std::size_t count = std::clamp<std::size_t>((2 * device.facts().cache_bytes + bytes - 1) / bytes, 1, kMostSets);
  std::vector<RoundTrip> sets;
  for (std::size_t i = 0; i < count; ++i) sets.emplace_back(device, bench_case);
  sets.front().fill(content_of(bench_case));
  for (const RoundTrip& set : sets) {
    if (&set != &sets.front()) set.fill_from(sets.front());
    set.encode();
    set.decode();
  }
  return sets;
}

double gbps(std::size_t bytes, double ms) { return ms > 0 ? static_cast<double>(bytes) / ms * 1e-6 : 0; }

}  // namespace

Segments BenchCase::segments() const {
  constexpr std::int64_t kSamples = 256;
  if (segment_bits.empty()) return {};
  Segments result{1, 0};
  while (result.count < kSamples && elems % (2 * result.count) == 0) result.count *= 2;
  for (std::int64_t s = 0; s < result.count; ++s) result.total_bits += bits_of_segment(*this, s);
  return result;
}

std::string BenchCase::name() const {
  if (segment_bits.empty()) return to_string(spec);
  return fmt::format("{}:{}", codec_info(spec).name, fmt::join(segment_bits, "+"));
}

double BenchCase::expected_error() const {
  if (segment_bits.empty()) return actzip::expected_error(spec);
  double sum = 0.0;
  const std::int64_t count = segments().count;
  for (std::int64_t s = 0; s < count; ++s) {
    CodecSpec own = spec;
    if (auto* affine = std::get_if<Affine>(&own)) affine->bits = Bits(bits_of_segment(*this, s));
    if (auto* rotated = std::get_if<Rotated>(&own)) rotated->bits = Bits(bits_of_segment(*this, s));
    sum += actzip::expected_error(own);
  }
  return sum / static_cast<double>(count);
}

double BenchRow::copy_gbps() const { return gbps(2 * source_bytes, copy_ms); }
double BenchRow::encode_gbps() const { return gbps(source_bytes + encoded_bytes, encode_ms); }
double BenchRow::decode_gbps() const { return gbps(encoded_bytes + decoded_bytes, decode_ms); }
double BenchRow::bytes_per_element() const {
  return static_cast<double>(encoded_bytes) / static_cast<double>(std::max<std::int64_t>(bench_case.elems, 1));
}

DType decoded_type(const CodecSpec& spec, DType dtype) {
  const auto given = codec_info(spec).decodes;
  return std::find(given.begin(), given.end(), dtype) != given.end() ? dtype : given.front();
}

Fidelity verify(BenchDevice& device, const BenchCase& bench_case) {
  const RoundTrip trip(device, bench_case);
  trip.fill(content_of(bench_case));
  trip.encode();
  trip.decode();
  const Fidelity fidelity = trip.fidelity();
  check_fidelity(bench_case, fidelity);
  return fidelity;
}

BenchRow measure(BenchDevice& device, const BenchCase& bench_case, int repeats) {
  constexpr int kWarmUps = 3;
  const std::vector<RoundTrip> sets = make_sets(device, bench_case);
  BenchRow row;
  row.bench_case = bench_case;
  row.source_bytes = sets[0].source_bytes();
  row.encoded_bytes = sets[0].encoded_bytes();
  row.decoded_bytes = sets[0].decoded_bytes();
  row.threads = device.facts().threads;
  row.fidelity = sets[0].fidelity();
  check_fidelity(bench_case, row.fidelity);

  // Copy, encode and decode alternate, so that a change of clock speed affects all three. Each timed step is preceded
  // by an untimed one of the same kind: it leaves the cache as such a step does, and the timed step does not pay for
  // writing back another step's dirty lines.
  constexpr std::array<Step, 3> kSteps{&RoundTrip::copy, &RoundTrip::encode, &RoundTrip::decode};
  std::array<std::vector<double>, kSteps.size()> times;
  std::size_t turn = 0;
  for (int repeat = -kWarmUps; repeat < repeats; ++repeat) {
    for (std::size_t step = 0; step < kSteps.size(); ++step) {
      (sets[turn++ % sets.size()].*kSteps[step])();
      const RoundTrip& set = sets[turn++ % sets.size()];
      const double ms = device.time_ms([&] { (set.*kSteps[step])(); });
      if (repeat >= 0) times[step].push_back(ms);
    }
  }
  row.copy_ms = median(times[0]);
  row.encode_ms = median(times[1]);
  row.decode_ms = median(times[2]);
  return row;
}

LaunchRow measure_launch(BenchDevice& device, const BenchCase& bench_case, int repeats) {
  constexpr int kQueue = 64;  // calls timed together
  const RoundTrip trip(device, bench_case);
  trip.fill(content_of(bench_case));
  trip.encode();
  trip.decode();
  check_fidelity(bench_case, trip.fidelity());
  const std::array<std::function<void()>, 3> calls{[&] { trip.encode(); }, [&] { trip.decode(); },
                                                   [&] { device.launch_nothing(); }};
  std::array<std::vector<double>, 3> times;
  for (int repeat = -1; repeat < repeats; ++repeat) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const double ms = device.time_ms([&] {
        for (int call = 0; call < kQueue; ++call) calls[i]();
      });
      if (repeat >= 0) times[i].push_back(ms * 1e3 / kQueue);
    }
  }
  return {bench_case, median(times[0]), median(times[1]), median(times[2])};
}

}  // namespace actzip::cli
