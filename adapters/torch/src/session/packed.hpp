// What a session keeps in place of one saved tensor, and how it becomes a tensor again.
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

/// A call of an operator that runs again in backward for what it saved.
class RunsAgain {
 public:
  virtual ~RunsAgain() = default;

  /// What it saved there.
  [[nodiscard]] virtual at::Tensor compute(int part) = 0;

  /// Backward has got this part.
  virtual void note_restored(int part, const at::Tensor& tensor) = 0;
};

/// What stands in place of one saved tensor. Holds no Python object, no graph and no session.
class Packed {
 public:
  Packed() = default;
  /// The tensor itself, which `function` has saved.
  static Packed as_saved(const at::Tensor& tensor, const std::string& function);
  /// What `packed` has become by the time that anybody asks.
  static Packed later(std::shared_ptr<const Packed> packed);
  /// What it has become; itself but for later().
  [[nodiscard]] const Packed& settled() const { return later_ ? *later_ : *this; }

  /// Restores the tensor; as often as wanted. Throws c10::Error as torch does if the tensor was modified in place after
  /// it was saved, compressed or not; and if a backward with create_graph asks for what is not kept exactly.
  [[nodiscard]] at::Tensor unpack() const;

  /// Throws as unpack() does.
  void check_version() const;

  /// The same, for the node that saved it; with noise on it, or as it was saved, while somebody tries that out.
  [[nodiscard]] at::Tensor unpack_as_tried() const;

  [[nodiscard]] Keep how() const { return kept_.how; }
  /// Whether its values are kept in few bits, so that others may be derived from them.
  [[nodiscard]] bool is_encoded() const { return kept_.how == Keep::encoded; }
  /// Whether unpack() gives just what was saved.
  [[nodiscard]] bool is_exact() const {
    return kept_.how == Keep::as_is || (kept_.how == Keep::encoded && !kept_.derived && !is_lossy(kept_));
  }
  /// For somebody who holds it beside the node, and is counted as another one who does: see note_holder().
  [[nodiscard]] Packed for_another() const;
  /// Whether nothing is kept, and the operator runs again for it.
  [[nodiscard]] bool is_recomputed() const { return kept_.how == Keep::recomputed; }
  /// Whether it restores the source that it was packed with, from which the tensor is to be computed.
  [[nodiscard]] bool is_derived() const { return kept_.derived; }
  /// Name of the site that saved it, as in the report.
  [[nodiscard]] const std::string& site() const { return *kept_.site; }
  /// What an observed step tries out in it, if anything.
  [[nodiscard]] std::optional<TriedSave> tried() const;
  /// What a guard is to hear of it when its node has run; mostly null.
  [[nodiscard]] const std::shared_ptr<Witness>& witness() const { return witness_; }
  /// The bytes themselves, of the source if it is derived; on the current stream. Requires is_encoded().
  [[nodiscard]] Encoding encoding() const;
  [[nodiscard]] c10::Device device() const { return device_; }
  /// Of what unpack() gives, unless it is kept as it is.
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] c10::ScalarType type() const { return type_; }
  /// Memory for what unpack() would give. Not for what is kept as it is.
  [[nodiscard]] at::Tensor empty_restored() const { return empty_restored(type_); }
  /// The same of another type.
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
  at::Tensor as_is_;  ///< defined if nothing was encoded, and it is no slice
  std::shared_ptr<const KeptSlice> slice_;
  bool is_input_ = false;  ///< its caller may hold it, too
  c10::weak_intrusive_ptr<c10::StorageImpl> input_{c10::intrusive_ptr<c10::StorageImpl>()};  ///< if it was encoded
  c10::VariableVersion counter_;  ///< shared with the tensor; keeps no data alive
  std::uint32_t version_ = 0;
  bool has_version_ = false;             ///< inference tensors have none
  Shape shape_;                          ///< dense, in the memory order of what was saved
  std::shared_ptr<const Shape> gapped_;  ///< as it was saved, if its strides are to come back and were not dense
  bool is_conjugated_ = false;           ///< lazily: what is kept is what lies in memory
  c10::ScalarType type_ = c10::ScalarType::Undefined;
  c10::Device device_ = c10::kCPU;
  std::shared_ptr<RunsAgain> call_;   ///< that saved it, if it can run again; mostly none
  int part_ = 0;                      ///< which of its tensors this is
  std::shared_ptr<Witness> witness_;  ///< mostly null
  std::shared_ptr<const Packed> later_;
};

/// One range in a profile, named after site(). Nothing unless somebody profiles.
class ProfileRange {
 public:
  template <class Site>
  ProfileRange(std::string_view what, Site site) : range_(at::RecordScope::USER_SCOPE) {
    if (!range_.isActive()) return;
    name_ = std::string("actzip ") + std::string(what) + " " + site();
    range_.before(name_.c_str());
  }

 private:
  std::string name_;  // before the range, which looks at it until it ends
  at::RecordFunction range_;
};

/// Makes `device` the current one while it lives, if it is no CPU.
c10::OptionalDeviceGuard guard_for(c10::Device device);

}  // namespace actzip::torch
