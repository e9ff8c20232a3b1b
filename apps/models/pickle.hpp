// What torch.save() writes of a dict of tensors, read without torch and without trust: nothing in a file is executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace actzip::models {

enum class ElementType : std::uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };

/// A tensor as a view of one record of the archive. Counts are of elements.
struct PickledTensor {
  ElementType type = ElementType::f32;
  std::string record;  ///< "0" for data/0
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
};

using PickledTensors = std::vector<std::pair<std::string, PickledTensor>>;

/// A pickle that is whole, but of something else than a dict of tensors.
class NoDictOfTensors : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reads data.pkl, as far as protocol 2 and state dicts need it: names that would be called stand for tensors and
/// dicts, and others are refused. `record_bytes` gives the size of a record, and throws if there is none. Every element
/// of every tensor lies in its record: sizes and strides are not negative, and the last element is inside. They may
/// overlap, since strides may be 0. Throws NoDictOfTensors, or std::runtime_error for a pickle that cannot be read.
PickledTensors unpickle_tensors(std::string_view pickle,
                                const std::function<std::size_t(const std::string& record)>& record_bytes);

}  // namespace actzip::models
