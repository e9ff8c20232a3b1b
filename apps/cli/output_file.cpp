#include "output_file.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace actzip::cli {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& why) {
  throw std::runtime_error(fmt::format("cannot write {}: {}", path.string(), why));
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)), temporary_(path_) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path_, ignored)) fail(path_, "it is a directory");
  temporary_ += fmt::format(".{}.tmp", getpid());
  stream_.open(temporary_, std::ios::binary | std::ios::trunc);
  if (!stream_) fail(path_, std::strerror(errno));
}

OutputFile::~OutputFile() {
  std::error_code ignored;  // after commit(), there is nothing left to remove
  std::filesystem::remove(temporary_, ignored);
}

void OutputFile::commit(std::string_view text) {
  stream_ << text;
  stream_.close();
  if (!stream_) fail(path_, "the device refused the data; is it full?");
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  if (error) fail(path_, error.message());
}

}  // namespace actzip::cli
