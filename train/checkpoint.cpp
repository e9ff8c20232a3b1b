#include "checkpoint.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>

#include "models/weights.hpp"

namespace actzip::train {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 2;
constexpr const char* kState = "state";

at::Tensor as_tensor(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

std::string as_text(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

Json json_of(const Checkpoint& checkpoint, const Options& options) {
  const Progress& progress = checkpoint.progress;
  Json numbers = Json::object();
  for (const auto& [name, value] : options.numbers) numbers[name] = value;
  // What is not a number yet is null in JSON.
  return {{"format", kFormat},
          {"step", progress.step},
          {"logged_step", progress.logged_step},
          {"best", progress.best},
          {"best_choice", progress.best_choice},
          {"last", progress.last},
          {"evaluations_since_best", progress.evaluations_since_best},
          {"seconds", progress.seconds},
          {"examples", progress.examples},
          {"options", numbers},
          {"data", checkpoint.data},
          {"session", checkpoint.session}};
}

double number_or_nan(const Json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

void check_options(const Json& saved, const Options& options, const std::string& path) {
  std::vector<std::string> differences;
  for (const auto& [name, value] : options.numbers) {
    const std::string before = saved.value(name, "");
    if (before != value) differences.push_back(fmt::format("{} is {} and was {}", name, value, before));
  }
  if (differences.empty()) return;
  throw WrongUsage(fmt::format("{} is of a run with other options: {} (allowed: the same ones, or another --output)",
                               path, fmt::join(differences, "; ")));
}

}  // namespace

std::string checkpoint_path(const std::string& folder) {
  return (std::filesystem::path(folder) / "checkpoint.pt").string();
}

void write_checkpoint(const std::string& folder, const Checkpoint& checkpoint, const Options& options) {
  NamedTensors all{{kState, as_tensor(json_of(checkpoint, options).dump())}};
  const auto add = [&](const char* prefix, const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors) all.emplace_back(prefix + name, tensor);
  };
  add("model/", checkpoint.model);
  add("optimizer/", checkpoint.optimizer);
  add("others/", checkpoint.others);
  models::write_tensors(checkpoint_path(folder), all);
}

Checkpoint read_checkpoint(const std::string& folder, const Options& options) {
  const std::string path = checkpoint_path(folder);
  if (!std::filesystem::exists(path))
    throw WrongUsage(fmt::format("no checkpoint to go on from: {} is not there", path));
  Checkpoint checkpoint;
  Json state;
  for (const auto& [name, tensor] : models::read_tensors(path)) {
    const std::size_t slash = name.find('/');
    const std::string folder_of = name.substr(0, slash == std::string::npos ? 0 : slash);
    const std::string rest = name.substr(slash == std::string::npos ? 0 : slash + 1);
    if (folder_of == "model") checkpoint.model.emplace_back(rest, tensor);
    if (folder_of == "optimizer") checkpoint.optimizer.emplace_back(rest, tensor);
    if (folder_of == "others") checkpoint.others.emplace_back(rest, tensor);
    if (name == kState) state = Json::parse(as_text(tensor), nullptr, /*allow_exceptions=*/false);
  }
  if (!state.is_object() || state.value("format", 0) != kFormat) {
    throw std::runtime_error(
        fmt::format("{} is no checkpoint of this program: it has no state of format {}", path, kFormat));
  }
  check_options(state["options"], options, path);
  Progress& progress = checkpoint.progress;
  progress.step = state.at("step");
  progress.logged_step = state.at("logged_step");
  progress.best = number_or_nan(state.at("best"));
  progress.best_choice = number_or_nan(state.at("best_choice"));
  progress.last = number_or_nan(state.at("last"));
  progress.evaluations_since_best = state.at("evaluations_since_best");
  progress.seconds = state.at("seconds");
  progress.examples = state.at("examples");
  checkpoint.data = state.at("data");
  checkpoint.session = state.at("session");
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
