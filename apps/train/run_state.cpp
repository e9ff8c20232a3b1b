#include "run_state.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "data/shallow_json.hpp"

namespace actzip::train {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 2;
constexpr std::int64_t kMost = std::int64_t{1} << 53;  ///< limit that keeps later counting from overflowing

/// Reads and checks the members of a state. Error messages name the file.
class Members {
 public:
  Members(const Json& state, const std::string& path) : state_(state), path_(path) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(fmt::format("{} is no checkpoint of this program: its state {}", path_, what));
  }

  [[nodiscard]] const Json& at(const char* name) const {
    const auto found = state_.find(name);
    if (found == state_.end()) fail(fmt::format("has no '{}'", name));
    return *found;
  }

  [[nodiscard]] std::int64_t count(const char* name, std::int64_t most = kMost) const {
    const Json& value = at(name);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(most)) {
      fail(fmt::format("has {} as '{}' (allowed: 0 to {})", value.dump(), name, most));
    }
    return value.get<std::int64_t>();
  }

  /// JSON has null for values that are NaN.
  [[nodiscard]] double number_or_nan(const char* name) const {
    const Json& value = at(name);
    return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  }

  [[nodiscard]] std::string text(const char* name) const {
    const Json& value = at(name);
    if (!value.is_string()) fail(fmt::format("has {} as '{}' (allowed: a text)", value.dump(), name));
    return value.get<std::string>();
  }

 private:
  const Json& state_;
  const std::string& path_;
};

void check_options(const Json& saved, const Options& options, const std::string& path) {
  std::vector<std::string> differences;
  for (const auto& [name, value] : options.numbers) {
    const auto found = saved.find(name);
    const std::string before = found != saved.end() && found->is_string() ? found->get<std::string>() : std::string();
    if (before != value) differences.push_back(fmt::format("{} is {} and was {}", name, value, before));
  }
  if (differences.empty()) return;
  throw WrongUsage(fmt::format("{} is of a run with other options: {} (allowed: the same ones, or another --output)",
                               path, fmt::join(differences, "; ")));
}

Progress progress_of(const Members& members) {
  Progress progress;
  progress.step = members.count("step");
  progress.logged_step = members.count("logged_step", progress.step);
  progress.best = members.number_or_nan("best");
  progress.best_choice = members.number_or_nan("best_choice");
  progress.last = members.number_or_nan("last");
  progress.evaluations_since_best = members.count("evaluations_since_best");
  progress.seconds = members.number_or_nan("seconds");
  progress.examples = members.count("examples");
  if (!(progress.seconds >= 0) || !std::isfinite(progress.seconds)) members.fail("has no number of 'seconds'");
  return progress;
}

}  // namespace

std::string text_of(const RunState& state, const Options& options) {
  const Progress& progress = state.progress;
  Json numbers = Json::object();
  for (const auto& [name, value] : options.numbers) numbers[name] = value;
  return Json{{"format", kFormat},
              {"step", progress.step},
              {"logged_step", progress.logged_step},
              {"best", progress.best},
              {"best_choice", progress.best_choice},
              {"last", progress.last},
              {"evaluations_since_best", progress.evaluations_since_best},
              {"seconds", progress.seconds},
              {"examples", progress.examples},
              {"options", numbers},
              {"data", state.data},
              {"session", state.session}}
      .dump();
}

RunState parse_run_state(const std::string& text, const Options& options, const std::string& path) {
  Json json;
  try {
    json = data::parse_shallow_json<Json>(text);
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{} is no checkpoint of this program: its state: {}", path, error.what()));
  }
  const Members members(json, path);
  if (!json.is_object()) members.fail("is no JSON object");
  if (members.count("format") != kFormat) members.fail(fmt::format("is not of format {}", kFormat));
  check_options(members.at("options"), options, path);
  return {progress_of(members), members.text("data"), members.text("session")};
}

}  // namespace actzip::train
