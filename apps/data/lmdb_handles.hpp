// LMDB's handles with an owner, and the names that reader and writer share.
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

/// Keys beside the records'. A record's key is its number, 8 bytes, greatest first, so that they lie in order.
inline constexpr std::string_view kFormat = "format";    ///< there when the database is complete
inline constexpr std::string_view kRecords = "records";  ///< u64
inline constexpr std::string_view kClasses = "classes";  ///< names, a line each
inline constexpr std::string_view kFiles = "files";      ///< u64: of the folder it was made from
inline constexpr std::string_view kDone = "done";        ///< u64: how many of these were looked at
inline constexpr std::string_view kSkipped = "skipped";  ///< those that are no JPEG, a line each
inline constexpr std::string_view kFormatName = "actzip images 1";

using Key = std::array<char, 8>;
Key record_key(std::uint64_t index);
inline std::string_view view(const Key& key) { return {key.data(), key.size()}; }

/// What stands before the JPEG in a record: label (u32), length of the name (u16), name.
struct Record {
  std::uint32_t label = 0;
  std::string_view name;
  Bytes jpeg;
};
std::optional<Record> parse_record(Bytes bytes);

/// Throws DataError "PATH: what LMDB says" unless `status` is 0.
void check(int status, const std::filesystem::path& path);

class Environment {
 public:
  /// Throws DataError, also for a database that LMDB would read outside of its file.
  Environment(const std::filesystem::path& path, unsigned flags, std::size_t map_bytes);

  [[nodiscard]] MDB_env* get() const { return handle_.get(); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::uint64_t entries() const { return entries_; }  ///< when it was opened

 private:
  std::filesystem::path path_;
  std::uint64_t entries_ = 0;
  std::unique_ptr<MDB_env, decltype(&mdb_env_close)> handle_{nullptr, &mdb_env_close};
};

/// Undone at its end unless committed.
class Transaction {
 public:
  Transaction(const Environment& environment, unsigned flags);
  Transaction(Transaction&& other) noexcept
      : environment_(other.environment_), handle_(std::exchange(other.handle_, nullptr)), table_(other.table_) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();

  /// The bytes in the map, valid as long as the transaction is; nothing if the key is not there.
  [[nodiscard]] std::optional<Bytes> get(std::string_view key) const;
  [[nodiscard]] std::uint64_t number(std::string_view key) const;  ///< 0 if it is not there
  [[nodiscard]] std::string text(std::string_view key) const;      ///< empty if it is not there

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
