// What a session keeps in place of one saved tensor, and how to restore it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "actzip/session.hpp"
#include "observe/gradient_comparison.hpp"
#include "observe/noise_stream.hpp"
#include "session/kept_slices.hpp"

namespace actzip::torch {

/// A call of an operator that can run again in backward to compute what it saved.
class RunsAgain {
 public:
  virtual ~RunsAgain() = default;

  /// Returns the tensor that it saved as `part`.
  [[nodiscard]] virtual at::Tensor compute(int part) = 0;

  /// Backward has received `part`.
  virtual void note_restored(int part, const at::Tensor& tensor) = 0;
};

/// What stands in place of one saved tensor. Holds no Python object, no autograd graph and no session.
class Packed {
 public:
  Packed() = default;
  /// The tensor itself, as `function` saved it.
  static Packed as_saved(const at::Tensor& tensor, const std::string& function);
  /// A placeholder for `packed`, which is filled in before it is read.
  static Packed later(std::shared_ptr<const Packed> packed);
  /// Returns what later() was given; otherwise this object itself.
  [[nodiscard]] const Packed& settled() const { return later_ ? *later_ : *this; }

  /// Restores the tensor, as often as needed. Throws c10::Error, as torch does, if the tensor was modified in place
  /// after it was saved, compressed or not; and if a backward with create_graph needs a tensor that is not kept
  /// exactly.
  [[nodiscard]] at::Tensor unpack() const;

  /// Throws c10::Error if the tensor was modified in place after it was saved.
  void check_version() const;

  /// Like unpack(), for the node that saved the tensor: with noise while an observed step tries this site, and exactly
  /// as saved while the guard compares gradients.
  [[nodiscard]] at::Tensor unpack_as_tried() const;

  [[nodiscard]] Keep how() const { return kept_.how; }
  /// Whether encoded values are kept, from which other tensors may be derived.
  [[nodiscard]] bool is_encoded() const { return kept_.how == Keep::encoded; }
  /// Whether unpack() returns exactly what was saved.
  [[nodiscard]] bool is_exact() const {
    return kept_.how == Keep::as_is || (kept_.how == Keep::encoded && !kept_.derived && !is_lossy(kept_));
  }
  /// Returns a copy to be held in addition to the node's. note_holder() then counts it as one more save of the same
  /// memory.
  [[nodiscard]] Packed for_another() const;
  /// Whether nothing is kept, because the operator runs again instead.
  [[nodiscard]] bool is_recomputed() const { return kept_.how == Keep::recomputed; }
  /// Whether unpack() restores the source that the tensor was packed with; the caller computes the tensor from it.
  [[nodiscard]] bool is_derived() const { return kept_.derived; }
  /// Name of the site that saved it, as in the report.
  [[nodiscard]] const std::string& site() const { return *kept_.site; }
  [[nodiscard]] bool has_site() const { return kept_.site != nullptr; }
  /// What an observed step tries at this site, if anything.
  [[nodiscard]] std::optional<TriedSave> tried() const;
  /// The guard's exact copy, if this step checks the site; mostly null.
  [[nodiscard]] const std::shared_ptr<Witness>& witness() const { return witness_; }
  /// Returns the encoded bytes, of the source if it is derived, ready on the current stream. Requires is_encoded().
  [[nodiscard]] Encoding encoding() const;
  [[nodiscard]] c10::Device device() const { return device_; }
  /// Shape of the dense tensor that unpack() restores. Not set if the tensor is kept as it is.
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] c10::ScalarType type() const { return type_; }
  /// Allocates memory for what unpack() restores. Requires that the tensor is not kept as it is.
  [[nodiscard]] at::Tensor empty_restored() const { return empty_restored(type_); }
  /// The same, with another type.
  [[nodiscard]] at::Tensor empty_restored(c10::ScalarType type) const;

 private:
  friend class SessionImpl;
  [[nodiscard]] at::Tensor restored() const;
  void check_differentiated_once() const;
  void note_holder() const;
  void note_version(const at::Tensor& tensor);
  [[nodiscard]] at::Tensor restored_dense() const;

  Kept kept_;
  SiteId site_;
  at::Tensor as_is_;  ///< defined if the tensor is kept as it is, and is no slice
  std::shared_ptr<const KeptSlice> slice_;
  bool is_input_ = false;  ///< no gradient flows through it; the program may hold it, too
  c10::weak_intrusive_ptr<c10::StorageImpl> input_{c10::intrusive_ptr<c10::StorageImpl>()};  ///< if it was encoded
  c10::VariableVersion counter_;  ///< shared with the tensor; keeps no data alive
  std::uint32_t version_ = 0;
  bool has_version_ = false;             ///< inference tensors have none
  Shape shape_;                          ///< dense, in the memory order of the saved tensor
  std::shared_ptr<const Shape> gapped_;  ///< as saved; set if the strides must be restored and were not dense
  bool is_conjugated_ = false;           ///< lazily; the values are kept as they lie in memory
  c10::ScalarType type_ = c10::ScalarType::Undefined;
  c10::Device device_ = c10::kCPU;
  std::shared_ptr<RunsAgain> call_;   ///< the call that saved it, if it can run again; mostly null
  int part_ = 0;                      ///< which of its tensors this is
  std::shared_ptr<Witness> witness_;  ///< mostly null
  std::shared_ptr<const Packed> later_;
};

/// A range in torch's profiler, named after site(). Does nothing while no profiler runs.
class ProfileRange {
 public:
  template <class Site>
  ProfileRange(std::string_view what, Site site) : range_(at::RecordScope::USER_SCOPE) {
    if (!range_.isActive()) return;
    name_ = std::string("actzip ") + std::string(what) + " " + site();
    range_.before(name_.c_str());
  }

 private:
  std::string name_;  // before the range, which refers to it until it ends
  at::RecordFunction range_;
};

/// Makes `device` the current one while the guard lives. Does nothing for a CPU.
c10::OptionalDeviceGuard guard_for(c10::Device device);

}  // namespace actzip::torch
