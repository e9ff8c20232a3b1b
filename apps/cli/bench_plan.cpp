#include "bench_plan.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "openmp_executor.hpp"

namespace actzip::cli {
namespace {

struct Entry {
  CodecSpec spec;
  std::vector<DType> dtypes;
  std::vector<int> segment_bits{};
};

using enum DType;

bool takes(const CodecSpec& spec, DType dtype) {
  const auto types = codec_info(spec).encodes;
  return std::find(types.begin(), types.end(), dtype) != types.end();
}

/// f32 and bf16 for codecs that encode f32, otherwise the codec's first type.
std::vector<DType> usual_types(const CodecSpec& spec) {
  if (takes(spec, f32)) return {f32, bf16};
  return {codec_info(spec).encodes.front()};
}

/// Cases that the registry does not list: a vocabulary, map sizes of real networks, segments with their own bits.
constexpr const char* kFurtherSpecs[] = {
    "index:bound=50257",          "dual:2:size=32x32",         "dual:2:size=56x56",         "dual:2:size=14x14",
    "dual:2:dithered:size=56x56", "dual:2:size=56x56:last=64", "dual:2:size=14x14:last=256"};
const std::vector<int> kSegmentBits = {1, 3};

std::vector<Entry> full_list() {
  std::vector<Entry> list;
  for (const CodecInfo& info : codecs()) {
    for (const CodecSpec& spec : info.variants) list.push_back({spec, usual_types(spec)});
  }
  for (const char* spec : kFurtherSpecs) list.push_back({parse_spec(spec), usual_types(parse_spec(spec))});
  for (const CodecSpec& spec : {CodecSpec(Affine{}), CodecSpec(Rotated{})}) {
    list.push_back({spec, {f32, bf16}, kSegmentBits});
  }
  return list;
}

/// Each codec with its default parameters.
std::vector<Entry> quick_list() {
  std::vector<Entry> list;
  for (const CodecInfo& info : codecs()) {
    const CodecSpec spec = parse_spec(info.name);
    list.push_back({spec, {usual_types(spec).front()}});
  }
  list.push_back({Rotated{}, {f32}, kSegmentBits});
  return list;
}

/// A few cases, for the additional tensor sizes.
std::vector<Entry> short_list() {
  return {{Affine{}, {bf16}}, {Rotated{}, {bf16}}, {Mask{}, {bf16}}, {Rotated{}, {bf16}, kSegmentBits}};
}

/// For `dual`, rounds `elems` down to whole maps (at least one), as in every real tensor.
std::int64_t in_whole_maps(const CodecSpec& spec, std::int64_t elems) {
  const auto* dual = std::get_if<Dual>(&spec);
  if (dual == nullptr) return elems;
  const std::int64_t sample = dual->size.positions() * dual->last;
  return std::max<std::int64_t>(elems / sample, 1) * sample;
}

/// The user's specs and types, where given, in the place of those of the list.
std::vector<BenchCase> make_cases(const std::vector<Entry>& list, const BenchRequest& request, std::int64_t elems) {
  std::vector<BenchCase> cases;
  for (const CodecSpec& spec : request.specs) {
    for (const DType dtype : request.dtypes.empty() ? usual_types(spec) : request.dtypes) {
      cases.push_back({spec, dtype, in_whole_maps(spec, elems)});
    }
  }
  if (!request.specs.empty()) return cases;
  for (const Entry& entry : list) {
    for (const DType dtype : request.dtypes.empty() ? entry.dtypes : request.dtypes) {
      if (!takes(entry.spec, dtype)) continue;
      cases.push_back({entry.spec, dtype, in_whole_maps(entry.spec, elems), entry.segment_bits});
    }
  }
  return cases;
}

std::vector<CpuLevel> chosen_levels(const std::string& text) {
  const auto levels = cpu_levels();
  if (text == "best") return {cpu_level()};
  if (text == "all") return {levels.begin(), levels.end()};
  std::vector<std::string_view> names;
  for (const CpuLevel level : levels) {
    if (to_string(level) == text) return {level};
    names.push_back(to_string(level));
  }
  throw Error(
      ErrorCode::backend_unavailable,
      fmt::format("CPU level '{}' was asked for; this machine has best, all, {}", text, fmt::join(names, ", ")));
}

std::vector<int> chosen_threads(const BenchRequest& request) {
  std::vector<std::string> texts = request.threads;
  if (texts.empty()) texts = request.quick ? std::vector<std::string>{"all"} : std::vector<std::string>{"1", "all"};
  std::vector<int> counts;
  for (const std::string& text : texts) {
    int count = available_threads();
    if (text != "all") std::from_chars(text.data(), text.data() + text.size(), count);
    if (std::find(counts.begin(), counts.end(), count) == counts.end()) counts.push_back(count);
  }
  return counts;
}

void append(std::vector<BenchCase>& cases, std::vector<BenchCase> more) {
  cases.insert(cases.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

BenchPlan make_plan(const BenchRequest& request) {
  constexpr std::int64_t kMi = std::int64_t{1} << 20;
  const bool cuda = request.device == DeviceKind::cuda;
  const std::int64_t usual = cuda ? (request.quick ? 64 * kMi : 256 * kMi) : (request.quick ? 4 * kMi : 16 * kMi);

  BenchPlan plan;
  plan.repeats = request.repeats.value_or(request.quick ? 5 : cuda ? 21 : 9);
  plan.cases = make_cases(request.quick ? quick_list() : full_list(), request, request.elems.value_or(usual));
  if (request.large_elems) append(plan.cases, make_cases(short_list(), request, *request.large_elems));
  if (cuda && !request.quick) plan.launch_cases = make_cases(short_list(), request, kMi);
  if (!cuda) {
    for (const CpuLevel level : chosen_levels(request.levels)) {
      for (const int threads : chosen_threads(request)) plan.settings.push_back({level, threads});
    }
  }

  if (plan.cases.empty()) {
    throw Error(ErrorCode::unsupported_dtype,
                "no codec of the list takes the element types given; see 'actzip codecs'");
  }
  for (const BenchCase& item : plan.cases) (void)encoded_bytes(item.spec, item.dtype, item.elems, item.segments());
  return plan;
}

}  // namespace actzip::cli
