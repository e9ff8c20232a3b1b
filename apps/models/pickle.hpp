// Reads the pickles that torch.save() writes for dicts of tensors. Needs no torch, and never executes code from a file.
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

/// A tensor as a view of one record of the archive. Offset, sizes and strides count elements.
struct PickledTensor {
  ElementType type = ElementType::f32;
  std::string record;  ///< the record's name: "0" for data/0
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
};

using PickledTensors = std::vector<std::pair<std::string, PickledTensor>>;

/// The pickle is intact but holds something other than a dict of tensors.
class NoDictOfTensors : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reads data.pkl, supporting what protocol 2 and state dicts need. Recognises the functions that make tensors and
/// dicts, without calling them, and refuses all others. `record_bytes` must return the size of a record and throw if it
/// does not exist. All elements of the returned tensors lie within their records: sizes and strides are not negative,
/// and the last element is inside. Elements may overlap, because strides may be 0. Throws NoDictOfTensors, or
/// std::runtime_error for a pickle that cannot be read.
PickledTensors unpickle_tensors(std::string_view pickle,
                                const std::function<std::size_t(const std::string& record)>& record_bytes);

}  // namespace actzip::models
