// System calls that fail when a test says so. The linker sends the calls of the library here (CMakeLists.txt, --wrap).
#pragma once

#include <string>
#include <vector>

namespace actzip::test {

/// While it lives, calls are counted from 1, and those that were chosen fail. One at a time.
class FailingCalls {
 public:
  /// The `number`-th of all fails with an error that it may well have; 0: none.
  explicit FailingCalls(int number = 0);
  /// All calls with this name, as in names(), fail with `error`.
  FailingCalls(std::string name, int error);
  FailingCalls(const FailingCalls&) = delete;
  FailingCalls& operator=(const FailingCalls&) = delete;
  ~FailingCalls();

  /// What was called, in this order: "mmap", "madvise:willneed".
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] int count(const std::string& name) const;
};

}  // namespace actzip::test
