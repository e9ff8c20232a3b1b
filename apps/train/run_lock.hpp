// Ensures that only one run at a time writes into a folder.
#pragma once

#include <string>

namespace actzip::train {

/// A lock held while a run writes into its folder. The system releases it when the process ends, however it ends. The
/// file run.lock stays and names the last holder.
class RunLock {
 public:
  /// Throws WrongUsage, naming the process, if another one holds the lock, and std::system_error if the file cannot be
  /// created.
  explicit RunLock(const std::string& folder);
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

  /// The reason why no lock is held, as on network file systems without locks. Empty if the lock is held.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  std::string path_;
  int file_ = -1;
  std::string problem_;
};

}  // namespace actzip::train
