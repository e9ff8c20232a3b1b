// Lets tests make system calls fail. The linker redirects the library's calls to here (CMakeLists.txt, --wrap).
#pragma once

#include <string>
#include <vector>

namespace actzip::test {

/// Counts calls from 1 during its lifetime and makes the chosen ones fail. Only one may exist at a time.
class FailingCalls {
 public:
  /// Makes the `number`-th of all calls fail with an error that is plausible for it; 0: none.
  explicit FailingCalls(int number = 0);
  /// Makes all calls with this name, as in names(), fail with `error`.
  FailingCalls(std::string name, int error);
  FailingCalls(const FailingCalls&) = delete;
  FailingCalls& operator=(const FailingCalls&) = delete;
  ~FailingCalls();

  /// Returns the calls in order: "mmap", "madvise:willneed".
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] int count(const std::string& name) const;
};

}  // namespace actzip::test
