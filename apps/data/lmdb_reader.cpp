#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <type_traits>

#include "jpeg.hpp"
#include "lmdb.hpp"
#include "lmdb_handles.hpp"

namespace actzip::data {
namespace {

using lmdb::Transaction;

class LmdbImages final : public ImageSource {
 public:
  /// Nobody writes to a complete database, so it needs no lock file and may be on read-only storage.
  explicit LmdbImages(const std::filesystem::path& folder)
      : environment_(folder, MDB_RDONLY | MDB_NOLOCK | MDB_NORDAHEAD, 0) {
    const Transaction transaction(environment_, MDB_RDONLY);
    if (const std::string format = transaction.text(lmdb::kFormat); format != lmdb::kFormatName) {
      throw DataError(fmt::format("{}: its format is '{}' (expected: '{}', written by 'actzip dataset to-lmdb')",
                                  folder.string(), format, lmdb::kFormatName));
    }
    records_ = transaction.number(lmdb::kRecords);
    const std::string names = transaction.text(lmdb::kClasses);
    classes_ = std::ranges::count(names, '\n');
    if (records_ < 1 || records_ > environment_.entries() || classes_ < 1) {
      throw DataError(fmt::format("{}: {} records of {} classes (allowed: 1 class or more, 1 to {} records)",
                                  folder.string(), records_, classes_, environment_.entries()));
    }
  }

  [[nodiscard]] std::size_t size() const override { return records_; }
  [[nodiscard]] std::int64_t classes() const override { return classes_; }
  [[nodiscard]] std::string kind() const override { return "LMDB of JPEGs"; }

  [[nodiscard]] std::string name_of(std::size_t index) const override {
    return with_record(index, [&](const lmdb::Record& record) { return full_name(index, record); });
  }

  [[nodiscard]] Example read(std::size_t index, const DecodeHint& hint) const override {
    return with_record(index, [&](const lmdb::Record& record) -> Example {
      const std::string name = full_name(index, record);
      if (record.label >= classes_) {
        throw DamagedRecord(name, fmt::format("label {} (allowed: 0 to {})", record.label, classes_ - 1));
      }
      return {decode_jpeg(record.jpeg, hint, name), record.label};
    });
  }

 private:
  [[nodiscard]] std::string number_of(std::size_t index) const {
    return fmt::format("{}, record {}", environment_.path().filename().string(), index);
  }

  [[nodiscard]] std::string full_name(std::size_t index, const lmdb::Record& record) const {
    return fmt::format("{} ({})", number_of(index), record.name);
  }

  template <class Use>
  [[nodiscard]] std::invoke_result_t<Use, const lmdb::Record&> with_record(std::size_t index, Use use) const {
    const Lease lease(*this);
    const auto bytes = lease.transaction().get(lmdb::view(lmdb::record_key(index)));
    const auto record = bytes ? lmdb::parse_record(*bytes) : std::nullopt;
    if (!record) throw DamagedRecord(number_of(index), bytes ? "truncated" : "missing");
    return use(*record);
  }

  /// Borrows a transaction for one thread and returns it for reuse.
  class Lease {
   public:
    explicit Lease(const LmdbImages& images) : images_(images), transaction_(images.take()) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() {
      const std::lock_guard lock(images_.mutex_);
      images_.idle_.push_back(std::move(transaction_));
    }
    [[nodiscard]] const Transaction& transaction() const { return *transaction_; }

   private:
    const LmdbImages& images_;
    std::unique_ptr<Transaction> transaction_;
  };

  [[nodiscard]] std::unique_ptr<Transaction> take() const {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Transaction>(environment_, MDB_RDONLY);
    auto transaction = std::move(idle_.back());
    idle_.pop_back();
    return transaction;
  }

  lmdb::Environment environment_;
  std::size_t records_ = 0;
  std::int64_t classes_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Transaction>> idle_;
};

}  // namespace

std::unique_ptr<ImageSource> open_lmdb(const std::filesystem::path& folder) {
  return std::make_unique<LmdbImages>(folder);
}

}  // namespace actzip::data
