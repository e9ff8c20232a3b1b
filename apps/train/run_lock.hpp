// One run at a time for a folder.
#pragma once

#include <string>

namespace actzip::train {

/// Held while a run writes into its folder. The system lets go of it when the process ends, however it does; the file
/// run.lock stays, and says who held it last.
class RunLock {
 public:
  /// Throws WrongUsage, naming the process, if another one holds it; std::system_error if the file cannot be made.
  explicit RunLock(const std::string& folder);
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

  /// Why nothing is held: some network file systems have no locks. Empty if all is well.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  std::string path_;
  int file_ = -1;
  std::string problem_;
};

}  // namespace actzip::train
