#include "conformance/runner.hpp"

namespace actzip::testing {
namespace {
/// Outputs start out like this, so that a byte that was not written shows.
constexpr std::uint8_t kUnwritten = 0xa5;

DeviceBuffer upload(Device device, std::span<const std::byte> bytes) {
  DeviceBuffer buffer(device, bytes.size());
  buffer.write(0, bytes);
  return buffer;
}

DeviceBuffer filled(Device device, std::size_t bytes, std::uint8_t value) {
  DeviceBuffer buffer(device, bytes);
  buffer.fill(value);
  return buffer;
}

ByteSpan span_of(const DeviceBuffer& buffer) { return {buffer.data(), buffer.size(), buffer.device()}; }
}  // namespace

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  for (const CpuLevel level : cpu_levels()) names.emplace_back(to_string(level));
  if (cuda_device_count() > 0) names.emplace_back("cuda");
  return names;
}

Device use_backend(std::string_view name) {
  if (name == "cuda") {
    if (cuda_device_count() > 0) return Device::cuda();
    throw Error(ErrorCode::backend_unavailable, "backend cuda: no device found");
  }
  for (const CpuLevel level : {CpuLevel::base, CpuLevel::avx2, CpuLevel::avx512}) {
    if (name != to_string(level)) continue;
    set_cpu_level(level);
    return Device::cpu();
  }
  throw Error(ErrorCode::backend_unavailable,
              "backend '" + std::string(name) + "': allowed are base, avx2, avx512, cuda");
}

Case read_case(const nlohmann::json& entry, const char* dtype) {
  Case test{parse_spec(entry.at("spec").get<std::string>()),
            parse_dtype(entry.at(dtype).get<std::string>()),
            entry.at("elems").get<std::int64_t>(),
            {entry.at("segments").get<std::int64_t>(), entry.value("total_bits", std::int64_t{0})},
            Seed(entry.at("seed").get<std::uint64_t>()),
            {}};
  for (const auto& bits : entry.value("bits", nlohmann::json::array())) {
    test.segment_bits.push_back(static_cast<std::byte>(bits.get<std::uint8_t>()));
  }
  return test;
}

Encoded encode_on(Device device, const Case& test, std::span<const std::byte> elements) {
  const DeviceBuffer source = upload(device, elements);
  const DeviceBuffer target =
      filled(device, encoded_bytes(test.spec, test.dtype, test.elems, test.segments), kUnwritten);
  const DeviceBuffer workspace = filled(device, workspace_bytes(test.spec, test.dtype, test.elems, test.segments), 0);
  const OwnedStream stream(device);
  const ConstTensorView view(source.data(), test.dtype, Shape::contiguous({test.elems}), device);
  const DeviceBuffer bits = upload(device, test.segment_bits);
  encode(test.spec, view, span_of(target), test.seed, stream.get(), test.segments, span_of(workspace), span_of(bits));
  stream.synchronize();
  return {target.read(0, target.size()), workspace.read(0, workspace.size())};
}

Bytes decode_on(Device device, const Case& test, std::span<const std::byte> encoded) {
  const DeviceBuffer source = upload(device, encoded);
  const DeviceBuffer target =
      filled(device, static_cast<std::size_t>(test.elems) * dtype_bytes(test.dtype), kUnwritten);
  const OwnedStream stream(device);
  const TensorView view(target.data(), test.dtype, Shape::contiguous({test.elems}), device);
  decode(test.spec, span_of(source), view, test.seed, stream.get(), test.segments);
  stream.synchronize();
  return target.read(0, target.size());
}

}  // namespace actzip::testing
