#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "jpeg.hpp"
#include "little_endian.hpp"
#include "lmdb.hpp"
#include "lmdb_handles.hpp"

namespace actzip::data {
namespace {

namespace fs = std::filesystem;
using lmdb::Transaction;

/// Limits of one commit, and so of the work lost if the process is stopped.
constexpr std::size_t kFilesPerCommit = 4096;
constexpr std::size_t kBytesPerCommit = std::size_t{64} << 20U;

std::string as_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> skipped_in(const Transaction& transaction) {
  const std::string text = transaction.text(lmdb::kSkipped);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    lines.push_back(text.substr(at, text.find('\n', at) - at));
  }
  return lines;
}

/// Returns an upper bound of the file's size: whole pages for each record, a tenth more for the tree above them, and a
/// constant. The file itself grows only as it is written.
std::size_t map_bytes(const FolderImages& images) {
  constexpr std::size_t kPage = 4096;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < images.size(); ++i) bytes += (images.bytes_of(i) / kPage + 2) * kPage;
  return bytes + bytes / 10 + (std::size_t{64} << 20U);
}

/// A lock on a folder, held while a process writes. The system releases it when the process ends, however it ends.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw DataError(fmt::format("{}: {}", folder.string(), std::strerror(errno)));
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    const int reason = errno;
    ::close(descriptor_);
    const std::string why = fmt::format("cannot be locked: {}", std::strerror(reason));
    throw DataError(fmt::format("{}: {}", folder.string(), reason == EWOULDBLOCK ? "another process writes it" : why));
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() { ::close(descriptor_); }

 private:
  int descriptor_;
};

class Writer {
 public:
  Writer(const FolderImages& images, const fs::path& partial)
      : images_(images), environment_(partial, 0, map_bytes(images)) {
    const Transaction transaction(environment_, MDB_RDONLY);
    done_ = transaction.number(lmdb::kDone);
    records_ = transaction.number(lmdb::kRecords);
    skipped_ = skipped_in(transaction);
    if (done_ > 0) check_same_folder(transaction);
  }

  Conversion run(const ConversionProgress& progress) {
    const std::size_t found = done_;
    while (done_ < images_.size()) {
      write_some();
      progress(done_, images_.size());
    }
    Transaction transaction(environment_, 0);
    put_state(transaction);
    transaction.put_text(lmdb::kFormat, lmdb::kFormatName);
    transaction.commit();
    return {records_, found, skipped_};
  }

 private:
  void check_same_folder(const Transaction& transaction) const {
    const auto last = records_ > 0 ? transaction.get(lmdb::view(lmdb::record_key(records_ - 1))) : std::nullopt;
    const auto record = last ? lmdb::parse_record(*last) : std::nullopt;
    // The last record comes from the last processed file, or from one that only skipped files follow.
    bool same = transaction.number(lmdb::kFiles) == images_.size() &&
                transaction.text(lmdb::kClasses) == as_lines(images_.class_names()) && done_ <= images_.size();
    if (same && record) {
      std::size_t at = done_;
      while (at > 0 && images_.name_of(at - 1) != record->name && done_ - at <= skipped_.size()) --at;
      same = at > 0 && images_.name_of(at - 1) == record->name;
    }
    if (!same) {
      throw DataError(fmt::format("{}: begun with other files than {} has now (remove it to begin again)",
                                  environment_.path().string(), images_.root().string()));
    }
  }

  void write_some() {
    Transaction transaction(environment_, 0);
    std::size_t bytes = 0;
    const std::size_t end = std::min(images_.size(), done_ + kFilesPerCommit);
    while (done_ < end && bytes < kBytesPerCommit) bytes += write_file(transaction, done_++);
    put_state(transaction);
    transaction.commit();
  }

  std::size_t write_file(Transaction& transaction, std::size_t index) {
    const std::string name = images_.name_of(index);
    try {
      const std::vector<std::uint8_t> jpeg = images_.content_of(index);
      (void)jpeg_size(jpeg, name);
      if (name.size() > std::numeric_limits<std::uint16_t>::max()) throw DamagedRecord(name, "its name is too long");
      std::vector<std::uint8_t> record;
      record.reserve(jpeg.size() + name.size() + 6);
      append_little_endian(record, static_cast<std::uint32_t>(images_.label_of(index)));
      append_little_endian(record, static_cast<std::uint16_t>(name.size()));
      record.insert(record.end(), name.begin(), name.end());
      record.insert(record.end(), jpeg.begin(), jpeg.end());
      transaction.put(lmdb::view(lmdb::record_key(records_++)), record);
      return record.size();
    } catch (const DamagedRecord& damaged) {
      skipped_.emplace_back(damaged.what());
      return 0;
    }
  }

  void put_state(Transaction& transaction) const {
    transaction.put_number(lmdb::kDone, done_);
    transaction.put_number(lmdb::kFiles, images_.size());
    transaction.put_number(lmdb::kRecords, records_);
    transaction.put_text(lmdb::kClasses, as_lines(images_.class_names()));
    transaction.put_text(lmdb::kSkipped, as_lines(skipped_));
  }

  const FolderImages& images_;
  lmdb::Environment environment_;
  std::size_t done_ = 0;     ///< files processed
  std::size_t records_ = 0;  ///< files written as records
  std::vector<std::string> skipped_;
};

/// Removes a file without complete headers. LMDB creates a file by writing its two headers at once. If that write was
/// cut short, there is nothing to resume from, and LMDB would refuse the file forever.
void remove_if_headless(const fs::path& partial) {
  constexpr std::uintmax_t kMostPage = 32768;
  const auto page = std::min(kMostPage, static_cast<std::uintmax_t>(::sysconf(_SC_PAGESIZE)));
  std::error_code ignored;
  const fs::path file = partial / "data.mdb";
  if (const std::uintmax_t bytes = fs::file_size(file, ignored); !ignored && bytes < 2 * page)
    fs::remove(file, ignored);
}

/// Returns the result stored in a finished database. Throws DataError if it was made of other files.
Conversion earlier_conversion(const FolderImages& images, const fs::path& output) {
  const lmdb::Environment environment(output, MDB_RDONLY | MDB_NOLOCK, 0);
  const Transaction transaction(environment, MDB_RDONLY);
  if (transaction.text(lmdb::kFormat) != lmdb::kFormatName || transaction.number(lmdb::kFiles) != images.size() ||
      transaction.text(lmdb::kClasses) != as_lines(images.class_names())) {
    throw DataError(fmt::format("{}: is there already, of other files than {} has now (remove it to begin again)",
                                output.string(), images.root().string()));
  }
  return {transaction.number(lmdb::kRecords), images.size(), skipped_in(transaction)};
}

}  // namespace

Conversion write_lmdb(const FolderImages& images, const fs::path& output, const ConversionProgress& progress) {
  if (holds_lmdb(output)) return earlier_conversion(images, output);
  if (fs::exists(output)) throw DataError(fmt::format("{}: is there already, and no database", output.string()));
  fs::path partial = output;
  partial += ".partial";
  std::error_code error;
  fs::create_directories(partial, error);
  if (error) throw DataError(fmt::format("{}: {}", partial.string(), error.message()));
  const FolderLock lock(partial);
  remove_if_headless(partial);
  Conversion conversion = Writer(images, partial).run(progress);
  fs::remove(partial / "lock.mdb", error);
  fs::rename(partial, output, error);
  if (error)
    throw DataError(fmt::format("cannot move {} to {}: {}", partial.string(), output.string(), error.message()));
  return conversion;
}

}  // namespace actzip::data
