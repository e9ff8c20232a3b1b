// The program `actzip-train`, which `actzip train` runs as a separate process, so that `actzip` need not load torch.
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "actzip/error.hpp"
#include "list.hpp"
#include "options.hpp"
#include "trainer.hpp"

namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

/// Passes torch's warnings on, except for one that users can do nothing about.
class Warnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (!std::string_view(warning.msg()).starts_with("Sparse CSR tensor support is in beta")) {
      c10::WarningHandler::process(warning);
    }
  }
};

int report(const std::exception& error, int status) noexcept {
  std::fprintf(stderr, "actzip train: %s\n", error.what());
  if (status == kWrongUsage) std::fputs("Run 'actzip train --help' for what is allowed.\n", stderr);
  return status;
}

int run(const std::vector<std::string>& arguments) {
  const auto options = actzip::train::parse_options(arguments);
  if (!options) return actzip::train::kDone;
  if (options->list) {
    fmt::print("{}", actzip::train::list_text());
    return actzip::train::kDone;
  }
  return actzip::train::train(*options);
}

}  // namespace

int main(int argc, char** argv) {
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  try {
    return run({argv + 1, argv + argc});
  } catch (const actzip::train::WrongUsage& error) {
    return report(error, kWrongUsage);
  } catch (const actzip::Error& error) {
    const auto code = error.code();
    const bool is_usage = code == actzip::ErrorCode::invalid_spec || code == actzip::ErrorCode::invalid_model;
    return report(error, is_usage ? kWrongUsage : kFailed);
  } catch (const std::exception& error) {
    return report(error, kFailed);
  }
}
