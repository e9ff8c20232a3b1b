// Owning wrappers for LMDB's handles, and the keys shared by reader and writer.
#pragma once

#include <lmdb.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "file.hpp"

namespace actzip::data::lmdb {

/// Keys other than those of records. A record's key is its number as 8 bytes, big-endian, which keeps records in order.
inline constexpr std::string_view kFormat = "format";    ///< present once the database is complete
inline constexpr std::string_view kRecords = "records";  ///< u64
inline constexpr std::string_view kClasses = "classes";  ///< names, one per line
inline constexpr std::string_view kFiles = "files";      ///< u64: number of files in the source folder
inline constexpr std::string_view kDone = "done";        ///< u64: number of these that were processed
inline constexpr std::string_view kSkipped = "skipped";  ///< files that are not JPEGs, one per line
inline constexpr std::string_view kFormatName = "actzip images 1";

using Key = std::array<char, 8>;
Key record_key(std::uint64_t index);
inline std::string_view view(const Key& key) { return {key.data(), key.size()}; }

/// A record: label (u32), length of the name (u16), name, JPEG.
struct Record {
  std::uint32_t label = 0;
  std::string_view name;
  Bytes jpeg;
};
std::optional<Record> parse_record(Bytes bytes);

/// Throws DataError with the path and LMDB's message unless `status` is 0.
void check(int status, const std::filesystem::path& path);

class Environment {
 public:
  /// Throws DataError, also for a damaged database that would make LMDB read beyond its file.
  Environment(const std::filesystem::path& path, unsigned flags, std::size_t map_bytes);

  [[nodiscard]] MDB_env* get() const { return handle_.get(); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::uint64_t entries() const { return entries_; }  ///< at the time of opening

 private:
  std::filesystem::path path_;
  std::uint64_t entries_ = 0;
  std::unique_ptr<MDB_env, decltype(&mdb_env_close)> handle_{nullptr, &mdb_env_close};
};

/// A transaction. The destructor aborts it unless it was committed.
class Transaction {
 public:
  Transaction(const Environment& environment, unsigned flags);
  Transaction(Transaction&& other) noexcept
      : environment_(other.environment_), handle_(std::exchange(other.handle_, nullptr)), table_(other.table_) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();

  /// Returns a value's bytes in the memory map, valid during the transaction; nothing if the key does not exist.
  [[nodiscard]] std::optional<Bytes> get(std::string_view key) const;
  [[nodiscard]] std::uint64_t number(std::string_view key) const;  ///< 0 if the key does not exist
  [[nodiscard]] std::string text(std::string_view key) const;      ///< empty if the key does not exist

  void put(std::string_view key, Bytes value);
  void put_number(std::string_view key, std::uint64_t value);
  void put_text(std::string_view key, std::string_view value);
  void commit();

 private:
  const Environment* environment_;
  MDB_txn* handle_ = nullptr;
  MDB_dbi table_ = 0;
};

}  // namespace actzip::data::lmdb
