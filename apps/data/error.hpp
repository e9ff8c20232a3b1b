// Exceptions for invalid data. Messages name the file, what was found and what is allowed.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace actzip::data {

/// The data set cannot be used at all: a wrong path or option, or a file of another format.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One record cannot be used, but others can. Loaders skip it, report its name and count it.
class DamagedRecord : public DataError {
 public:
  DamagedRecord(std::string name, const std::string& why) : DataError(name + ": " + why), name_(std::move(name)) {}
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
};

}  // namespace actzip::data
