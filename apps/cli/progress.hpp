// Shows the progress of long runs on stderr: an updating line on a terminal, plain lines elsewhere.
#pragma once

#include <cstddef>
#include <string_view>

namespace actzip::cli {

/// A status line for work without a known number of steps. Shown only on a terminal; elsewhere nobody is waiting.
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

  /// Announces the next of `total` steps.
  void step(std::string_view what);

 private:
  std::size_t total_;
  std::size_t done_ = 0;
  bool terminal_;
};

}  // namespace actzip::cli
