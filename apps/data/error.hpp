// What is thrown for data that is not as it should be. Messages name the file, what was found and what is allowed.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace actzip::data {

/// A data set that cannot be used at all: a path, an option, a file that is not of its format.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One record that cannot be used. Others can: loaders skip it, name it and count it.
class DamagedRecord : public DataError {
 public:
  DamagedRecord(std::string name, const std::string& why) : DataError(name + ": " + why), name_(std::move(name)) {}
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
};

}  // namespace actzip::data
