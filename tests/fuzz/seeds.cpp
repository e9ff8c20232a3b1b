// Writes what the fuzzers begin with: small inputs that are right, from which wrong ones are made.
//
//   fuzz_seeds FOLDER    FOLDER/graph_fuzzer/seed0, ...
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "data/made_up.hpp"
#include "input_files.hpp"

namespace {

using namespace actzip;
using Seeds = std::map<std::string, std::vector<std::string>>;

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : std::string(1, fuzz::kSeparator)) + part;
  return text;
}

std::string as_text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::string packed(const std::string& text) {
  const fuzz::InputFiles files;
  const std::string path = (files.path() / "x.gz").string();
  const gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  return test::content_of(path);
}

/// A tensor of 2 x 3 elements in record 0, as torch.save() writes it in a dict.
std::string pickle() {
  using namespace std::string_literals;
  return "\x80\x02}q\x00(X\x01\x00\x00\x00wq\x01"
         "ctorch._utils\n_rebuild_tensor_v2\nq\x02(("
         "X\x07\x00\x00\x00storageq\x03"
         "ctorch\nFloatStorage\nq\x04X\x01\x00\x00\x00"
         "0q\x05X\x03\x00\x00\x00"
         "cpuq\x06K\x06tq\x07QK\x00K\x02K\x03\x86q\x08K\x03K\x01\x86q\x09\x89"
         "ccollections\nOrderedDict\nq\x0a)Rq\x0b"
         "tq\x0cRq\x0d"
         "u}q\x0e"
         "b."s;
}

Seeds text_seeds() {
  const std::string nodes = "0\ttrain\t0 2\n1\tval\t1\n-1\t-\t\n1\ttest\t2 3\n";
  const std::vector<std::string> tables = {"0,1\n2,1\n", "0.5,-1e-3\n1,2\n-0.25,3\n", "4\n0\n2\n", "2\n", "0\n", "1\n"};
  std::vector<std::string> packed_tables;
  for (const std::string& table : tables) packed_tables.push_back(packed(table));
  const std::string site =
      R"({"site": "a: mm.self", "kind": "encoded", "codec": "rotated:2:mask", "dtype": "bf16", "shape": [4, 256], "bytes_before": 2048, )"
      R"("bytes_after": 300, "sensitivity": 0.5})";
  return {
      {"graph_fuzzer", {joined({nodes, "0\t1\n1 0\n3 3\n3\t0\n"})}},
      {"csv_graph_fuzzer", {joined(tables), joined(packed_tables)}},
      {"text_fuzzer", {joined({"sentence\tlabel\nb a  b \t1\na c\xc2\xa0zebra\t0\n", "sentence\tlabel\na new\t0\n"})}},
      {"pickle_fuzzer", {pickle()}},
      {"spec_fuzzer", {"rotated:2:mask", "affine:8:nearest:group=64:floor=-32", "dual:2:block=4:size=14x14:last=3"}},
      {"run_state_fuzzer",
       {R"({"format": 2, "step": 3, "logged_step": 2, "best": 1.5, "best_choice": null, "last": 2, )"
        R"("evaluations_since_best": 0, "seconds": 0.25, "examples": 30, "options": {"--lr": "0.1"}, )"
        R"("data": "3 nodes", "session": "actzip session 3\n"})"}},
      {"report_fuzzer",
       {R"({"sites": [)" + site + R"(, {"kind": "recomputed", "bytes_after": 0}, )" +
        R"({"kind": "encoded", "codec": "affine:4", "site": "b", "dtype": "f32", "shape": [9, 7], "bytes_before": 0}]})"}},
      {"session_fuzzer",
       {"actzip session 3\n12\t8\t3\t4096\t0.5\n3\t1\t2\t1.5\t4000\t0.25\t-\t0.5\n"
        "a.b\tmm\tself\t0\t3 0 rotated:2\t-\t0.125\t0\t2\t50\trotated:4\t1\t1\t1\t3\n"
        "c\trelu\tresult\t1\t-\t3 1 rotated:1:mask\t-\t1\t0\t3\t1\t-\t2\t0\t1\t3\n"}}};
}

Seeds image_seeds() {
  const auto image = test::smooth_image(24, 20, 1);
  Seeds seeds;
  for (const bool progressive : {false, true}) {
    for (const auto colours : {test::JpegColours::rgb, test::JpegColours::grey, test::JpegColours::cmyk}) {
      seeds["jpeg_fuzzer"].push_back("\x10\x02" + as_text(test::as_jpeg(image, colours, {2, 1, progressive})));
    }
  }
  const std::vector<std::uint8_t> jpeg = test::as_jpeg(test::smooth_image(8, 8));
  seeds["jpegs_file_fuzzer"] = {as_text(test::as_jpegs_file({jpeg, jpeg}))};
  seeds["cifar_fuzzer"] = {joined({std::string(2 * 3074, '\x05'), std::string(3074, '\x07')})};
  seeds["lmdb_fuzzer"] = {std::string("\0\0\x10\0\x03\0\0\0", 8), std::string("\0\x50", 2)};
  return seeds;
}

}  // namespace

int main(int count, char** values) {
  if (count != 2) {
    std::fputs("usage: fuzz_seeds FOLDER\n", stderr);
    return 2;
  }
  for (const Seeds& seeds : {text_seeds(), image_seeds()}) {
    for (const auto& [fuzzer, inputs] : seeds) {
      const std::filesystem::path folder = std::filesystem::path(values[1]) / fuzzer;
      std::filesystem::create_directories(folder);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        std::ofstream(folder / ("seed" + std::to_string(i)), std::ios::binary) << inputs[i];
      }
    }
  }
  return 0;
}
