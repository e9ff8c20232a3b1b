// Blocks in a file, whose pages can leave memory and are read back when they are needed.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "actzip/memory.hpp"
#include "store/blocks.hpp"

namespace actzip::store {

/// One file without a name in a folder. It belongs to the process that made it: a forked process may not write it.
///
/// Disk space is allocated before bytes are written to it, so a full disk is an Error of block() or prepare(), not a
/// signal that ends the process when the system writes pages out.
class FileBlocks final : public BlockSource, public std::enable_shared_from_this<FileBlocks> {
 public:
  static std::shared_ptr<FileBlocks> create(const std::string& folder);

  FileBlocks(const FileBlocks&) = delete;
  FileBlocks& operator=(const FileBlocks&) = delete;
  ~FileBlocks() override;

  Allocation block(std::size_t bytes) override;

  /// Makes the pages empty. Otherwise, pages that have left memory would be read just to be overwritten.
  void forget_contents(const std::byte* data, std::size_t size) noexcept override;

  // The functions below are for bytes within these blocks.

  /// Maps the pages for writing.
  void prepare(const std::byte* data, std::size_t size);

  /// Starts writing to the disk, and takes the pages out of the process. Only whole pages before the end of the bytes:
  /// the next bytes are written to the last page.
  void put_away(const std::byte* data, std::size_t size) noexcept;

  /// Starts reading from the disk.
  void read_ahead(const std::byte* data, std::size_t size) noexcept;

  /// Maps the pages for reading; waits for the disk if necessary. Throws if they cannot be read, or if the disk has
  /// refused some bytes of this file.
  void read(const std::byte* data, std::size_t size);

  /// Takes the pages out of the process and, as far as they are on the disk, out of memory. To the system, pages of
  /// freed bytes look as if they had just been used, and would take the place of pages that backward needs next.
  void discard(const std::byte* data, std::size_t size) noexcept;

  /// Whether all pages are in memory.
  [[nodiscard]] bool is_resident(const std::byte* data, std::size_t size) const noexcept;

  /// Whether nothing more should be stored here: the disk refused to write, or this is a forked process.
  [[nodiscard]] bool is_lost() const noexcept;

  /// Size of the file, from its start to the end of its last block.
  [[nodiscard]] std::size_t file_bytes() const;

 private:
  struct Release;

  FileBlocks(std::string folder, int file);
  std::byte* map_new(std::size_t size, off_t& at);
  [[nodiscard]] off_t gap(std::size_t size) const;
  [[nodiscard]] off_t end() const;
  void make_room(off_t at, std::size_t size) const;
  void give_back(off_t at, std::size_t size) noexcept;
  void release(std::byte* data, std::size_t size, off_t at) noexcept;
  [[nodiscard]] off_t place_of(const std::byte* data) const noexcept;
  void note_failure(int result) noexcept;
  [[noreturn]] void fail(std::size_t bytes, const char* what, int error) const;

  const std::string folder_;
  const int file_;
  const pid_t process_;
  mutable std::mutex mutex_;
  std::map<off_t, std::size_t> extents_;      ///< sizes of blocks, by their offset in the file
  std::map<const std::byte*, off_t> places_;  ///< offsets of blocks, by the address where they are mapped
  std::atomic<bool> has_failed_ = false;
};

}  // namespace actzip::store
