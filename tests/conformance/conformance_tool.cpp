// Runs a list of encodes and decodes on one backend, for test_conformance.py.
//
//   actzip_conformance --list                       backends and registry, as JSON
//   actzip_conformance --backend avx2 cases.json    runs the cases
//
// The manifest names two files, "input" and "output", and lists "cases": {op: encode|decode, spec, dtype, elems,
// segments, seed, in: [offset, bytes]}, plus total_bits and bits, a list, for segments with their own bits. Writes the
// results consecutively, in the order of the cases. An encode with a workspace writes that, too, after its bytes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/runner.hpp"

namespace {
using nlohmann::json;
using namespace actzip;
using namespace actzip::testing;

json names_of(std::span<const DType> dtypes) {
  json names = json::array();
  for (const DType dtype : dtypes) names.push_back(std::string(to_string(dtype)));
  return names;
}

json listing() {
  json codec_list = json::array();
  for (const CodecInfo& info : codecs()) {
    json variants = json::array();
    for (const CodecSpec& spec : info.variants) variants.push_back(to_string(spec));
    codec_list.push_back({{"name", std::string(info.name)},
                          {"variants", variants},
                          {"encodes", names_of(info.encodes)},
                          {"decodes", names_of(info.decodes)}});
  }
  return {{"backends", available_backends()}, {"codecs", codec_list}};
}

json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(fmt::format("{}: cannot be opened", path));
  return json::parse(file);
}

Bytes read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error(fmt::format("{}: cannot be opened", path));
  Bytes bytes(static_cast<std::size_t>(file.tellg()));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

void append(std::ofstream& file, const Bytes& bytes) {
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void run_case(Device device, const json& entry, std::span<const std::byte> input, std::ofstream& output) {
  const Case test = read_case(entry, "dtype");
  const auto offset = entry.at("in").at(0).get<std::size_t>();
  const auto bytes = entry.at("in").at(1).get<std::size_t>();
  if (offset > input.size() || bytes > input.size() - offset)
    throw std::runtime_error("`in` is outside the input file");
  const auto source = input.subspan(offset, bytes);
  if (entry.at("op") == "decode") return append(output, decode_on(device, test, source));
  const Encoded encoded = encode_on(device, test, source);
  append(output, encoded.bytes);
  append(output, encoded.workspace);
}

void run_manifest(const std::string& backend, const std::string& path) {
  const Device device = use_backend(backend);
  const json manifest = read_json(path);
  const Bytes input = read_bytes(manifest.at("input").get<std::string>());
  std::ofstream output(manifest.at("output").get<std::string>(), std::ios::binary);
  for (const json& entry : manifest.at("cases")) {
    try {
      run_case(device, entry, input, output);
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("{} on {}: {}", entry.dump(), backend, error.what()));
    }
  }
  if (!output.flush()) throw std::runtime_error("the output file cannot be written");
}
}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs encodes and decodes on one backend");
  bool list = false;
  std::string backend = "base";
  std::string manifest;
  app.add_flag("--list", list, "print backends and registry as JSON");
  app.add_option("--backend", backend, "base, avx2, avx512 or cuda");
  app.add_option("manifest", manifest, "JSON file with the cases");
  CLI11_PARSE(app, argc, argv);
  try {
    if (list) {
      fmt::print("{}\n", listing().dump());
    } else {
      run_manifest(backend, manifest);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "actzip_conformance: {}\n", error.what());
    return 1;
  }
  return 0;
}
