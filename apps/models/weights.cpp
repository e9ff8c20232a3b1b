#include "weights.hpp"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <array>
#include <filesystem>
#include <map>
#include <system_error>

#include "actzip/error.hpp"
#include "pickle.hpp"
#include "replacement.hpp"

namespace actzip::models {

namespace {

[[noreturn]] void fail(const std::string& path, const std::string& problem) {
  throw Error(ErrorCode::invalid_weights, fmt::format("{}: {}", path, problem));
}

/// Returns the content of data.pkl. Writes no type tags, because weights_only would not accept them.
std::string pickled(const NamedTensors& tensors, std::vector<at::Tensor>& storages) {
  c10::Dict<std::string, at::Tensor> dict;
  for (const auto& [name, tensor] : tensors) dict.insert(name, tensor.detach().cpu().contiguous());
  std::string text;
  ::torch::jit::Pickler pickler([&](const char* data, std::size_t size) { text.append(data, size); }, nullptr, nullptr,
                                nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dict);
  pickler.stop();
  storages = pickler.tensorData();
  return text;
}

/// In the order of ElementType.
constexpr std::array kTypes = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                               at::kInt,    at::kShort, at::kChar, at::kByte,     at::kBool};

/// A file written by torch.save(). Checks the sizes that it declares against the size of the file before allocating
/// memory.
class Archive {
 public:
  explicit Archive(const std::string& path) : reader_(path), bytes_left_(std::filesystem::file_size(path)) {}

  NamedTensors tensors() {
    constexpr std::size_t kMostPickle = std::size_t{16} << 20U;  // enough for 50,000 tensors
    if (reader_.hasRecord("byteorder") && text_of("byteorder") != "little") {
      throw std::runtime_error("its numbers are written greatest byte first");
    }
    if (const std::size_t bytes = reader_.getRecordSize("data.pkl"); bytes > kMostPickle) {
      throw std::runtime_error(fmt::format("a pickle of {} bytes (allowed: {})", bytes, kMostPickle));
    }
    const PickledTensors described = unpickle_tensors(
        text_of("data.pkl"), [&](const std::string& record) { return reader_.getRecordSize("data/" + record); });
    NamedTensors result;
    for (const auto& [name, tensor] : described) result.emplace_back(name, view_of(tensor));
    return result;
  }

 private:
  /// Reads a record. torch.save() does not compress, so all records together are no larger than the file.
  std::pair<at::DataPtr, std::size_t> bytes_of(const std::string& record) {
    const std::size_t bytes = reader_.getRecordSize(record);
    if (bytes > bytes_left_) throw std::runtime_error("its records are larger than the file");
    bytes_left_ -= bytes;
    auto [data, size] = reader_.getRecord(record);
    return {std::move(data), size};
  }

  std::string text_of(const std::string& record) {
    const auto [data, size] = bytes_of(record);
    return {static_cast<const char*>(data.get()), size};
  }

  at::Tensor view_of(const PickledTensor& tensor) {
    const auto [place, is_new] = storages_.try_emplace(tensor.record);
    if (is_new) {
      auto [data, bytes] = bytes_of("data/" + tensor.record);
      place->second = at::Storage(at::Storage::use_byte_size_t(), bytes, std::move(data), nullptr, /*resizable=*/false);
    }
    return at::empty({0}, kTypes.at(static_cast<std::size_t>(tensor.type)))
        .set_(place->second, tensor.offset, tensor.sizes, tensor.strides);
  }

  caffe2::serialize::PyTorchStreamReader reader_;
  std::size_t bytes_left_;
  std::map<std::string, at::Storage> storages_;
};

std::string shape_of(const at::Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")); }

bool is_optional(const std::string& name) { return name.ends_with("num_batches_tracked"); }

}  // namespace

void write_tensors(const std::string& path, const NamedTensors& tensors) {
  std::vector<at::Tensor> storages;
  const std::string text = pickled(tensors, storages);
  try {
    Replacement file(path);
    caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, std::size_t size) {
      file.append({static_cast<const char*>(data), size});
      return size;
    });
    writer.writeRecord("data.pkl", text.data(), text.size());
    for (std::size_t i = 0; i < storages.size(); ++i) {
      const ::torch::jit::WriteableTensorData bytes = ::torch::jit::getWriteableTensorData(storages[i]);
      writer.writeRecord(fmt::format("data/{}", i), bytes.data(), bytes.sizeInBytes());
    }
    writer.writeEndOfFile();
    file.finish();
  } catch (const std::system_error& error) {
    fail(path, fmt::format("cannot be written: {}", error.code().message()));
  }
}

NamedTensors read_tensors(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) fail(path, "no such file");
  try {
    return Archive(path).tensors();
  } catch (const NoDictOfTensors& error) {
    fail(path, error.what());
  } catch (const std::exception& error) {
    const std::string reason = error.what();
    fail(path, fmt::format("cannot be read as a torch file: {} (allowed: what torch.save(model.state_dict()) writes)",
                           reason.substr(0, reason.find('\n'))));
  }
}

NamedTensors state_of(const ::torch::nn::Module& model) {
  NamedTensors tensors;
  const auto add = [&](const std::string& prefix, const ::torch::nn::Module& module) {
    const std::string start = prefix.empty() ? "" : prefix + ".";
    for (const auto& item : module.named_parameters(/*recurse=*/false))
      tensors.emplace_back(start + item.key(), item.value());
    for (const auto& item : module.named_buffers(/*recurse=*/false))
      tensors.emplace_back(start + item.key(), item.value());
  };
  add("", model);
  for (const auto& item : model.named_modules("", /*include_self=*/false)) add(item.key(), *item.value());
  return tensors;
}

void save_weights(const ::torch::nn::Module& model, const std::string& path) { write_tensors(path, state_of(model)); }

std::size_t load_weights(::torch::nn::Module& model, const NamedTensors& tensors, const std::string& where) {
  std::map<std::string, at::Tensor> given(tensors.begin(), tensors.end());
  std::vector<std::string> missing, unknown, misshapen;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [name, target] : state_of(model)) {
    const auto found = given.extract(name);
    if (found.empty()) {
      if (!is_optional(name)) missing.push_back(name);
    } else if (found.mapped().sizes() != target.sizes()) {
      misshapen.push_back(fmt::format("{} is {} (expected: {})", name, shape_of(found.mapped()), shape_of(target)));
    } else {
      copies.emplace_back(target, found.mapped());
    }
  }
  for (const auto& item : given) unknown.push_back(item.first);
  std::string problems;
  const auto list = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) problems += fmt::format("; {}: {}", what, fmt::join(names, ", "));
  };
  list("missing", missing);
  list("unknown", unknown);
  list("of another shape", misshapen);
  if (!problems.empty()) fail(where, "does not fit the model" + problems);
  const at::NoGradGuard no_graph;
  for (auto& [target, source] : copies) target.copy_(source);
  return copies.size();
}

std::size_t load_weights(::torch::nn::Module& model, const std::string& path) {
  return load_weights(model, read_tensors(path), path);
}

}  // namespace actzip::models
