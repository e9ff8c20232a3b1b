// Where a long run is, on stderr: one line that is updated on a terminal, plain lines elsewhere.
#pragma once

#include <cstddef>
#include <string_view>

namespace actzip::cli {

/// What is done at the moment, without an end that is known in steps. On a terminal alone: elsewhere nobody waits.
class StatusLine {
 public:
  StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  ~StatusLine();

  void show(std::string_view text);

 private:
  bool terminal_;
};

class Progress {
 public:
  explicit Progress(std::size_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// Says that the next of `total` steps begins.
  void step(std::string_view what);

 private:
  std::size_t total_;
  std::size_t done_ = 0;
  bool terminal_;
};

}  // namespace actzip::cli
