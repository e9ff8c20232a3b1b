#include "lmdb_handles.hpp"

#include <fmt/format.h>

#include "error.hpp"
#include "little_endian.hpp"
#include "lmdb_pages.hpp"

namespace actzip::data::lmdb {
namespace {

MDB_val value_of(std::string_view text) { return {text.size(), const_cast<char*>(text.data())}; }

}  // namespace

Key record_key(std::uint64_t index) {
  Key key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<char>(index >> (8 * (key.size() - 1 - i)));
  return key;
}

std::optional<Record> parse_record(Bytes bytes) {
  constexpr std::size_t kHead = 6;
  if (bytes.size() < kHead) return std::nullopt;
  const std::size_t name_bytes = little_endian<std::uint16_t>(bytes, 4);
  if (bytes.size() < kHead + name_bytes) return std::nullopt;
  const auto* name = reinterpret_cast<const char*>(bytes.data() + kHead);
  return Record{little_endian<std::uint32_t>(bytes, 0), {name, name_bytes}, bytes.subspan(kHead + name_bytes)};
}

void check(int status, const std::filesystem::path& path) {
  if (status != MDB_SUCCESS) throw DataError(fmt::format("{}: {}", path.string(), mdb_strerror(status)));
}

Environment::Environment(const std::filesystem::path& path, unsigned flags, std::size_t map_bytes) : path_(path) {
  const std::filesystem::path file = path_ / "data.mdb";
  std::error_code is_new;
  if (std::filesystem::file_size(file, is_new) > 0 && !is_new) entries_ = check_pages(file);
  MDB_env* handle = nullptr;
  check(mdb_env_create(&handle), path_);
  handle_.reset(handle);
  if (map_bytes > 0) check(mdb_env_set_mapsize(handle, map_bytes), path_);
  constexpr mdb_mode_t kMode = 0644;
  check(mdb_env_open(handle, path_.c_str(), flags | MDB_NOTLS, kMode), path_);
}

Transaction::Transaction(const Environment& environment, unsigned flags) : environment_(&environment) {
  check(mdb_txn_begin(environment.get(), nullptr, flags, &handle_), environment.path());
  const int status = mdb_dbi_open(handle_, nullptr, 0, &table_);
  if (status != MDB_SUCCESS) mdb_txn_abort(std::exchange(handle_, nullptr));
  check(status, environment.path());
}

Transaction::~Transaction() {
  if (handle_ != nullptr) mdb_txn_abort(handle_);
}

std::optional<Bytes> Transaction::get(std::string_view key) const {
  MDB_val name = value_of(key);
  MDB_val value = {};
  const int status = mdb_get(handle_, table_, &name, &value);
  if (status == MDB_NOTFOUND) return std::nullopt;
  check(status, environment_->path());
  return Bytes(static_cast<const std::uint8_t*>(value.mv_data), value.mv_size);
}

std::uint64_t Transaction::number(std::string_view key) const {
  const auto bytes = get(key);
  return bytes && bytes->size() == sizeof(std::uint64_t) ? little_endian<std::uint64_t>(*bytes, 0) : 0;
}

std::string Transaction::text(std::string_view key) const {
  const auto bytes = get(key);
  return bytes ? std::string(bytes->begin(), bytes->end()) : std::string();
}

void Transaction::put(std::string_view key, Bytes value) {
  MDB_val name = value_of(key);
  MDB_val content = {value.size(), const_cast<std::uint8_t*>(value.data())};
  check(mdb_put(handle_, table_, &name, &content, 0), environment_->path());
}

void Transaction::put_number(std::string_view key, std::uint64_t value) {
  std::vector<std::uint8_t> bytes;
  append_little_endian(bytes, value);
  put(key, bytes);
}

void Transaction::put_text(std::string_view key, std::string_view value) {
  put(key, {reinterpret_cast<const std::uint8_t*>(value.data()), value.size()});
}

void Transaction::commit() { check(mdb_txn_commit(std::exchange(handle_, nullptr)), environment_->path()); }

}  // namespace actzip::data::lmdb
