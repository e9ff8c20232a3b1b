// A session for torch: describes tensors to the core, and turns what the core kept into tensors again.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "actzip/session.hpp"
#include "observe/gradient_guard.hpp"
#include "observe/loss_sites.hpp"
#include "observe/running_operators.hpp"
#include "observe/site_sequence.hpp"
#include "operators/parameters.hpp"
#include "session/kept_slices.hpp"
#include "session/packed.hpp"
#include "session/sample_table.hpp"

namespace actzip::torch {

/// What a layer knows beside the tensor; mostly nothing.
struct PackHelp {
  const Packed* source = nullptr;         ///< see actzip::Session::keep()
  const at::Tensor* cast_from = nullptr;  ///< what the layer made the tensor of, if that is a cast
};

/// A tensor of a layer, and room for its encoding.
struct ReservedPack {
  Reservation room;
  at::Tensor tensor;
  const OperatorInfo* op;
  Packed packed;  ///< as far as it is known
};

/// Whether a rule may name a module. Then modules are watched in every step: one that follows the learned sequence, and
/// leaves it, would not know them.
inline bool names_sites(const std::vector<Rule>& rules) {
  return std::ranges::any_of(rules, [](const Rule& rule) { return !rule.sites.starts_with("use:"); });
}

class SessionImpl final : public Listener, public std::enable_shared_from_this<SessionImpl> {
 public:
  explicit SessionImpl(const SessionOptions& options)
      : samples(std::make_shared<SampleTable>(options.use_gradient ? options.num_samples : 0)),
        session_(options),
        guard_(std::make_shared<GradientGuard>(session_.is_guarded())),
        is_dry_(options.dry) {
    if (names_sites(options.rules)) sequence_.give_up();
  }

  /// Modules are to be watched until its sequence of saves is known: see SiteSequence.
  bool begin_step() override;
  void end_step() override;
  /// A step without a scope, in which layers alone keep something.
  void begin_layer_step();
  /// The same, if backward of such a layer has run since the last step began, and runs no more: whoever calls layers
  /// without telling has steps, too.
  void begin_after_backward();
  /// Set by the nodes of layers, which may outlive the session.
  [[nodiscard]] const std::shared_ptr<std::atomic<bool>>& backward_ran() const { return backward_ran_; }
  /// Whether the step that has begun is observed; from now on it is.
  bool observe_step();
  bool follows_nodes() override { return observe_step() || is_guarding(); }
  /// Whether there are sites that its guard has yet to look at.
  [[nodiscard]] bool is_guarding() const { return guard_->is_active(); }
  /// Takes over what its guard has seen, unless a step is open: no step has some of its sites before and some after.
  void believe_guard();
  std::string guard_notice();
  /// What the user is to know before the step that has begun; mostly nothing.
  std::string take_notice();
  /// Learns from an observed step if it is time to read its figures. Gives whether it did.
  bool take_observation();
  /// Between two steps, with what the next one would begin with.
  std::string save_state();
  Packed pack(const at::Tensor& tensor);
  /// The same, of a saver that runs now and cannot run again.
  Packed pack_for(const Saver& saver, const at::Tensor& tensor);
  /// The same for a layer, which knows its module and what it saves.
  Packed pack(const at::Tensor& tensor, const Saver& saver, const std::string* module, const PackHelp& help = {});
  /// The two halves of that, for a layer that may encode the tensor itself: see actzip::Session::reserve().
  ReservedPack reserve(const at::Tensor& tensor, const Saver& saver, const std::string* module);
  Packed pack(ReservedPack reserved, Written written);
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
  /// Where one tensor is saved.
  struct Place {
    const SiteGroup* group = nullptr;
    SiteId id;
    bool is_in_loss = false;
  };
  Place place_of(const Saver& saver);
  Place place_in(const std::string* module, const Saver& saver);
  SiteSequence::Save next_save(const Saver& saver);
  bool note_pass();
  Packed pack_recurrent(const std::shared_ptr<RecurrentCall>& call, Saver& saver, const at::Tensor& tensor);
  SiteGroup& group_of(const Saver& saver, const std::string* module);
  SiteId next_in(SiteGroup& group, const Saver& saver, const std::string* module);
  SavedTensor describe(const at::Tensor& tensor, const Saver& saver, const Place& place, const PackHelp& help) const;
  [[nodiscard]] std::shared_ptr<Witness> witness_of(const Place& place, const Kept& kept, const at::Tensor& tensor);
  Packed pack_at(const Place& place, const at::Tensor& tensor, const Saver& saver, const PackHelp& help);
  void complete(Packed& packed, const at::Tensor& tensor, const SavedTensor& saved, const OperatorInfo& op,
                const Packed* source);

  actzip::Session session_;  ///< the core's, not the one of torch.hpp
  const std::shared_ptr<GradientGuard> guard_;
  const bool is_dry_;
  KeptSlices slices_;
  std::shared_ptr<std::atomic<bool>> backward_ran_ = std::make_shared<std::atomic<bool>>(true);
  std::mutex mutex_;  ///< of everything below
  std::size_t step_ = 0;
  int open_steps_ = 0;                   ///< on all threads
  bool has_held_ = false;                ///< something since the last pass of this step began
  int passes_ = 0;                       ///< forwards of this step whose backward has freed everything
  std::shared_ptr<NoiseStream> stream_;  ///< of an observed step, until its result has come
  bool is_observed_ = false;             ///< the step that runs now
  bool may_be_captured_ = false;         ///< it is, and nobody has looked yet
  int waited_ = 0;                       ///< steps, for the backward of an observed one
  int asked_ = 0;                        ///< how often for its result
  SiteSequence sequence_;
  LossSites loss_sites_{session_};
  std::vector<std::string> spoilt_;                          ///< sites of which the user has not been told
  std::unordered_map<SiteAddress, SiteGroup, Hash> groups_;  // its values stay where they are
  std::unordered_map<std::string, std::unique_ptr<std::string>> module_paths_;
};

}  // namespace actzip::torch
