// A session for torch: describes tensors to the core, and turns what the core kept into tensors again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "actzip/session.hpp"
#include "noise_stream.hpp"
#include "operators.hpp"
#include "parameters.hpp"
#include "sample_table.hpp"
#include "site_sequence.hpp"

namespace actzip::torch {

/// What stands in place of one saved tensor. Holds no Python object, no graph and no session.
class Packed {
 public:
  /// Restores the tensor; as often as wanted. Throws c10::Error as torch does if the tensor was modified in place after
  /// it was saved, compressed or not.
  [[nodiscard]] at::Tensor unpack() const;

  /// Throws as unpack() does.
  void check_version() const;

  /// The same; with noise on it, while that is tried out in an observed step.
  [[nodiscard]] at::Tensor unpack_as_tried() const;

  [[nodiscard]] Keep how() const { return kept_.how; }
  /// Whether its values are kept in few bits, so that others may be derived from them.
  [[nodiscard]] bool is_encoded() const { return kept_.how == Keep::encoded; }
  /// Whether nothing is kept, and the operator runs again for it.
  [[nodiscard]] bool is_recomputed() const { return kept_.how == Keep::recomputed; }
  /// Whether it restores the source that it was packed with, from which the tensor is to be computed.
  [[nodiscard]] bool is_derived() const { return kept_.derived; }
  /// Name of the site that saved it, as in the report.
  [[nodiscard]] const std::string& site() const { return *kept_.site; }
  /// What an observed step tries out in it, if anything.
  [[nodiscard]] std::optional<TriedSave> tried() const;
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

  Kept kept_;
  SiteId site_;
  at::Tensor as_is_;              ///< defined if nothing was encoded
  c10::VariableVersion counter_;  ///< shared with the tensor; keeps no data alive
  std::uint32_t version_ = 0;
  bool has_version_ = false;  ///< inference tensors have none
  Shape shape_;               ///< dense, in the memory order of what was saved
  c10::ScalarType type_ = c10::ScalarType::Undefined;
  c10::Device device_ = c10::kCPU;
  std::shared_ptr<AttentionCall> attention_;  ///< that saved it; mostly none
  int attention_part_ = 0;                    ///< of AttentionCall
};

/// What a layer knows beside the tensor; mostly nothing.
struct PackHelp {
  const Packed* source = nullptr;         ///< see actzip::Session::keep()
  Encoder* encoder = nullptr;             ///< see actzip::SavedTensor
  const at::Tensor* cast_from = nullptr;  ///< what the layer made the tensor of, if that is a cast
};

class SessionImpl {
 public:
  explicit SessionImpl(const SessionOptions& options)
      : samples(std::make_shared<SampleTable>(options.use_gradient ? options.num_samples : 0)), session_(options) {}

  /// Gives whether modules are to be watched in this step: see SiteSequence.
  bool begin_step();
  void end_step();
  /// A step without a scope, in which layers alone keep something.
  void begin_layer_step();
  /// The same, if backward of such a layer has run since the last step began, and runs no more: whoever calls layers
  /// without telling has steps, too.
  void begin_after_backward();
  /// Set by the nodes of layers, which may outlive the session.
  [[nodiscard]] const std::shared_ptr<std::atomic<bool>>& backward_ran() const { return backward_ran_; }
  /// Whether the step that has begun is observed; from now on it is.
  bool observe_step();
  /// Learns from an observed step if it is time to read its figures. Gives whether it did.
  bool take_observation();
  Packed pack(const at::Tensor& tensor);
  /// The same for a layer, which knows its module and what it saves.
  Packed pack(const at::Tensor& tensor, const Saver& saver, const std::string* module, const PackHelp& help = {});
  /// Where what is saved now is to be tried out; null unless the step is observed.
  [[nodiscard]] std::shared_ptr<NoiseStream> observer(const at::Tensor& tensor);

  ParameterRegistry parameters;
  const std::shared_ptr<SampleTable> samples;
  [[nodiscard]] Report report() const;
  [[nodiscard]] const actzip::Session& core() const { return session_; }
  [[nodiscard]] actzip::Session& core() { return session_; }

  /// A path for enter_module(); valid as long as the session.
  const std::string* module_path(const std::string& path);

 private:
  /// Where a site is looked up without making its name.
  struct SiteAddress {
    const std::string* module;
    const OperatorInfo* op;
    int slot;
    bool operator==(const SiteAddress&) const = default;
  };
  struct Hash {
    std::size_t operator()(const SiteAddress& address) const noexcept;
  };
  SiteSequence::Save place_of(const Saver& saver);
  SiteGroup& group_of(const Saver& saver, const std::string* module);
  SiteId next_in(SiteGroup& group, const Saver& saver, const std::string* module);
  SavedTensor describe(const at::Tensor& tensor, const Saver& saver, const SiteSequence::Save& place,
                       const PackHelp& help) const;
  Packed pack_at(const SiteSequence::Save& place, const at::Tensor& tensor, const Saver& saver, const PackHelp& help);

  actzip::Session session_;  ///< the core's, not the one of torch.hpp
  std::shared_ptr<std::atomic<bool>> backward_ran_ = std::make_shared<std::atomic<bool>>(true);
  std::mutex mutex_;  ///< of everything below
  std::size_t step_ = 0;
  int open_steps_ = 0;                   ///< on all threads
  std::shared_ptr<NoiseStream> stream_;  ///< of an observed step, until its result has come
  bool is_observed_ = false;             ///< the step that runs now
  bool may_be_captured_ = false;         ///< it is, and nobody has looked yet
  int waited_ = 0;                       ///< steps, for the backward of an observed one
  int asked_ = 0;                        ///< how often for its result
  SiteSequence sequence_;
  bool saw_module_ = false;                                  ///< in this step
  std::unordered_map<SiteAddress, SiteGroup, Hash> groups_;  // its values stay where they are
  std::unordered_map<std::string, std::unique_ptr<std::string>> module_paths_;
};

}  // namespace actzip::torch
