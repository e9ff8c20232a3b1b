#include "checkpoint.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <vector>

#include "models/weights.hpp"

namespace actzip::train {

namespace {

constexpr const char* kState = "state";

at::Tensor as_tensor(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

/// Returns the text in a tensor of contiguous bytes, or nothing for other tensors: one with a stride of 0 has more
/// elements than its memory has bytes.
std::optional<std::string> as_text(const at::Tensor& bytes) {
  if (bytes.scalar_type() != at::kByte || bytes.dim() != 1 || !bytes.is_contiguous()) return std::nullopt;
  return std::string(static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.numel()));
}

/// Returns all tensors with their names in the file.
NamedTensors all_tensors(const Checkpoint& checkpoint) {
  NamedTensors all;
  const auto add = [&](const char* prefix, const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors) all.emplace_back(prefix + name, tensor);
  };
  add("model/", checkpoint.model);
  add("optimizer/", checkpoint.optimizer);
  add("others/", checkpoint.others);
  return all;
}

}  // namespace

std::string checkpoint_path(const std::string& folder) {
  return (std::filesystem::path(folder) / "checkpoint.pt").string();
}

std::string first_not_finite(const Checkpoint& checkpoint) {
  const c10::NoGradGuard no_graph;
  std::vector<std::string> names;
  std::vector<at::Tensor> largest;
  for (const auto& [name, tensor] : all_tensors(checkpoint)) {
    if (!tensor.is_floating_point() || tensor.numel() == 0) continue;
    names.push_back(name);
    // The largest absolute value is not finite if any value is not.
    largest.push_back(at::linalg_vector_norm(tensor, std::numeric_limits<double>::infinity()).to(at::kDouble));
  }
  if (names.empty()) return {};
  const at::Tensor found = at::stack(largest).isfinite().logical_not().cpu();  // waits once for all tensors
  const auto* const is_wrong = found.const_data_ptr<bool>();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (is_wrong[i]) return names[i];
  }
  return {};
}

void write_checkpoint(const std::string& folder, const Checkpoint& checkpoint, const Options& options) {
  NamedTensors all = all_tensors(checkpoint);
  all.emplace(all.begin(), kState, as_tensor(text_of(checkpoint.state, options)));
  models::write_tensors(checkpoint_path(folder), all);
}

Checkpoint read_checkpoint(const std::string& folder, const Options& options) {
  const std::string path = checkpoint_path(folder);
  if (!std::filesystem::exists(path))
    throw WrongUsage(fmt::format("no checkpoint to go on from: {} is not there", path));
  Checkpoint checkpoint;
  std::optional<std::string> state;
  for (const auto& [name, tensor] : models::read_tensors(path)) {
    const std::size_t slash = name.find('/');
    const std::string folder_of = name.substr(0, slash == std::string::npos ? 0 : slash);
    const std::string rest = name.substr(slash == std::string::npos ? 0 : slash + 1);
    if (folder_of == "model") checkpoint.model.emplace_back(rest, tensor);
    if (folder_of == "optimizer") checkpoint.optimizer.emplace_back(rest, tensor);
    if (folder_of == "others") checkpoint.others.emplace_back(rest, tensor);
    if (name == kState) state = as_text(tensor);
  }
  if (!state) throw std::runtime_error(fmt::format("{} is no checkpoint of this program: it has no state", path));
  checkpoint.state = parse_run_state(*state, options, path);
  return checkpoint;
}

void copy_into(const NamedTensors& targets, const NamedTensors& values, const std::string& what) {
  const c10::NoGradGuard no_graph;
  const std::map<std::string, at::Tensor> by_name(values.begin(), values.end());
  for (const auto& [name, target] : targets) {
    const auto found = by_name.find(name);
    if (found == by_name.end() || found->second.sizes() != target.sizes()) {
      throw std::runtime_error(fmt::format("{}: '{}' is missing or of another shape", what, name));
    }
    target.copy_(found->second);
  }
}

}  // namespace actzip::train
