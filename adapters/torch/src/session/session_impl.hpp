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

/// What a layer knows about a tensor that it keeps; mostly nothing.
struct PackHelp {
  const Packed* source = nullptr;         ///< see actzip::Session::keep()
  const at::Tensor* cast_from = nullptr;  ///< the tensor before the cast, if the layer cast it
};

/// A tensor of a layer, and room for its encoding.
struct ReservedPack {
  Reservation room;
  at::Tensor tensor;
  const OperatorInfo* op;
  Use use;
  Packed packed;  ///< filled in as far as possible
};

/// Whether a rule may name a module. If so, modules are watched in every step: if a step followed the learned sequence
/// and left it, its modules would be unknown.
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

  /// Returns whether modules must be watched in this step: see SiteSequence.
  bool begin_step() override;
  bool resume_step() override;
  void end_step() override;
  /// Begins a step outside of scopes, in which only layers keep tensors.
  void begin_layer_step();
  /// Does the same if backward of a layer has run since the last step began, no backward runs now, and no scope is
  /// open. So programs that never call begin_step() have steps, too.
  void begin_after_backward();
  /// Set by the nodes of layers, which may outlive the session.
  [[nodiscard]] const std::shared_ptr<std::atomic<bool>>& backward_ran() const { return backward_ran_; }
  /// Begins to observe the step that has begun, if it should be. Returns whether it is observed from now on.
  bool observe_step();
  bool follows_nodes() override { return !module_runs_again() && (observe_step() || is_guarding()); }
  /// See actzip::Session::set_runs_again().
  void set_runs_again(bool any, bool changes);
  /// Whether the guard still has sites to check.
  [[nodiscard]] bool is_guarding() const { return guard_->is_active(); }
  /// Takes over the guard's verdicts, unless a step is open: within one step, a site must not be kept in two ways.
  void believe_guard();
  std::string guard_notice();
  /// Returns what the user should know; mostly empty.
  std::string take_notice();
  /// Learns from an observed step if its result is ready, or due. Returns whether it did.
  bool take_observation();
  /// Returns the state between two steps, including what the next step would learn at its beginning.
  std::string save_state();
  Packed pack(const at::Tensor& tensor);
  /// Packs a tensor for a saver that is known already.
  Packed pack_for(const Saver& saver, const at::Tensor& tensor);
  /// The same for a layer, which knows its module and what it saves.
  Packed pack(const at::Tensor& tensor, const Saver& saver, const std::string* module, const PackHelp& help = {});
  /// The two halves of that, for a layer that may encode the tensor itself: see actzip::Session::reserve().
  ReservedPack reserve(const at::Tensor& tensor, const Saver& saver, const std::string* module);
  Packed pack(ReservedPack reserved, Written written);
  /// Returns the noise stream in which this save takes part; null unless the step is observed.
  [[nodiscard]] std::shared_ptr<NoiseStream> observer(const at::Tensor& tensor);

  ParameterRegistry parameters;
  const std::shared_ptr<SampleTable> samples;
  [[nodiscard]] Report report() const;
  [[nodiscard]] const actzip::Session& core() const { return session_; }
  [[nodiscard]] actzip::Session& core() { return session_; }

  /// Returns the session's own copy of a path, for enter_module(). Valid as long as the session.
  const std::string* module_path(const std::string& path);

 private:
  /// The key of a group of sites; cheaper than building its name.
  struct SiteAddress {
    const std::string* module;
    const OperatorInfo* op;
    int slot;
    bool operator==(const SiteAddress&) const = default;
  };
  struct Hash {
    std::size_t operator()(const SiteAddress& address) const noexcept;
  };
  /// The site at which one tensor is saved.
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
  [[nodiscard]] std::shared_ptr<Witness> witness_of(SiteId site, Use use, const Kept& kept, const at::Tensor& tensor);
  Packed pack_at(const Place& place, const at::Tensor& tensor, const Saver& saver, const PackHelp& help);
  void complete(Packed& packed, const at::Tensor& tensor, const SavedTensor& saved, const OperatorInfo& op,
                const Packed* source);

  actzip::Session session_;  ///< the core's, not the one of torch.hpp
  const std::shared_ptr<GradientGuard> guard_;
  const bool is_dry_;
  KeptSlices slices_;
  std::shared_ptr<std::atomic<bool>> backward_ran_ = std::make_shared<std::atomic<bool>>(true);
  std::mutex mutex_;  ///< guards everything below
  std::size_t step_ = 0;
  int open_steps_ = 0;                       ///< on all threads
  bool has_held_ = false;                    ///< it has held something in this pass of the step: see note_pass()
  std::atomic<std::int64_t> look_round_{0};  ///< the last round of which the guard knows
  int passes_ = 0;                           ///< of this step that have ended: everything they held is freed
  std::shared_ptr<NoiseStream> stream_;      ///< of an observed step, until its result was read
  bool is_observed_ = false;                 ///< the current step is observed
  bool may_be_captured_ = false;             ///< it is observed, and it was not checked yet whether it is captured
  int waited_ = 0;                           ///< steps since an observed one whose backward has not run
  int asked_ = 0;                            ///< how often its result was asked for
  SiteSequence sequence_;
  LossSites loss_sites_{session_};
  std::vector<std::pair<std::string, Remedy>> remedies_;     ///< of sites that the user has not been told about
  std::unordered_map<SiteAddress, SiteGroup, Hash> groups_;  // its values keep their addresses
  std::unordered_map<std::string, std::unique_ptr<std::string>> module_paths_;
};

}  // namespace actzip::torch
