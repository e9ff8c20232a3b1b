#include "session/session_impl.hpp"

#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/backward.hpp"
#include "base/convert.hpp"
#include "base/memory.hpp"
#include "session/attention.hpp"
#include "session/complex_pairs.hpp"
#include "session/counted_saves.hpp"
#include "session/recurrent.hpp"

namespace actzip::torch {

namespace {

/// The module of what a step saves after leaving the sequence that it followed: modules are not watched in such a step.
const std::string kUnknownModule = "?";

Where where_is(const std::string* module) {
  if (module == nullptr) return Where::outside;
  return module->empty() ? Where::root : Where::inside;
}

/// Whether a foreign kernel may read the tensor, which may rely on the strides that it had. torch's own kernels read
/// the strides that they are given.
bool runs_unknown_code(const OperatorInfo& op) { return op.is_opaque || &op == &unknown_operator(); }

/// What the user is told about sites of which few bits are too few.
constexpr std::array<std::pair<Remedy, const char*>, 3> kVerdicts = {{
    {Remedy::exact,
     " spoilt a gradient; what is saved there is kept as it is from now on. A rule for these sites would spare the "
     "first steps, too"},
    {Remedy::more_bits, " made much of a gradient noise; these sites get more bits from now on"},
    {Remedy::no_room,
     " make much of a gradient noise, and more bits would take too much memory. A rule for these sites, or a larger "
     "bits=, gives them more nevertheless"},
}};

/// The names of some sites, and how many more there are.
std::string few_of(const std::vector<std::string>& sites) {
  constexpr std::size_t kMostNames = 3;
  std::string names;
  for (std::size_t i = 0; i < std::min(sites.size(), kMostNames); ++i) {
    names += (i == 0 ? "'" : ", '") + sites[i] + "'";
  }
  return sites.size() <= kMostNames ? names : names + " and " + std::to_string(sites.size() - kMostNames) + " more";
}

}  // namespace

bool SessionImpl::begin_step() {
  begin_nodes();
  take_observation();
  believe_guard();
  session_.begin_step();
  if (const std::int64_t round = session_.look_round(); look_round_.exchange(round) != round) guard_->begin_round();
  backward_ran_->store(false, std::memory_order_relaxed);
  samples->begin_step();
  const std::lock_guard lock(mutex_);
  if (open_steps_++ > 0) {
    if (sequence_.follows()) sequence_.leave();
    sequence_.give_up();
    loss_sites_.give_up_step();
  } else {
    loss_sites_.end_step();
  }
  ++step_;
  has_held_ = false;
  passes_ = 0;
  is_observed_ = false;
  return !sequence_.begin();
}

bool SessionImpl::resume_step() {
  session_.resume_step();
  const std::lock_guard lock(mutex_);
  ++open_steps_;
  return !sequence_.follows();
}

void SessionImpl::set_runs_again(bool any, bool changes) {
  session_.set_runs_again(any, changes);
  const std::lock_guard lock(mutex_);
  if (changes) sequence_.forget();
}

void SessionImpl::believe_guard() {
  {
    const std::lock_guard lock(mutex_);
    if (open_steps_ > 0) return;
  }
  for (const auto& [site, noise] : guard_->begin_step()) {
    const Remedy remedy = session_.note_look(site, noise);
    if (remedy == Remedy::none) continue;
    if (!session_.was_looked_at(site)) {
      guard_->postpone(site);  // a budget gives it more bits without a word
      continue;
    }
    const std::lock_guard lock(mutex_);
    remedies_.emplace_back(session_.site_name(site), remedy);
  }
}

std::string SessionImpl::save_state() {
  take_observation();
  believe_guard();
  const std::lock_guard lock(mutex_);
  if (open_steps_ == 0) loss_sites_.end_step();
  return session_.save_state();
}

std::string SessionImpl::take_notice() {
  const std::string of_guard = guard_notice();
  const std::string of_core = session_.take_notice();
  if (of_core.empty()) return of_guard;
  return of_guard.empty() ? "actzip: " + of_core : of_guard + ". " + of_core;
}

std::string SessionImpl::guard_notice() {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [remedy, verdict] : kVerdicts) {
    std::vector<std::string> sites;
    for (const auto& [site, own] : remedies_) {
      if (own == remedy) sites.push_back(site);
    }
    if (!sites.empty()) text += (text.empty() ? "actzip: few bits of " : "; few bits of ") + few_of(sites) + verdict;
  }
  remedies_.clear();
  return text.empty() ? text : text + ". guard=False switches this check off";
}

void SessionImpl::begin_layer_step() {
  begin_step();
  observe_step();
  end_step();
}

void SessionImpl::begin_after_backward() {
  if (!backward_ran_->load(std::memory_order_relaxed)) return;
  if (is_listening(*this) || is_in_backward()) return;
  begin_layer_step();
  if (const std::string notice = take_notice(); !notice.empty()) TORCH_WARN(notice);
}

bool SessionImpl::observe_step() {
  const std::lock_guard lock(mutex_);
  if (stream_ || open_steps_ != 1 || !session_.wants_observation()) return false;
  stream_ = std::make_shared<NoiseStream>();
  is_observed_ = may_be_captured_ = true;
  waited_ = asked_ = 0;
  session_.note_observed();
  return true;
}

/// A step that is being captured into a graph is not observed, since each replay would observe it again. This is
/// checked at the step's first tensor on a GPU, so that a step on the CPU never asks the driver.
std::shared_ptr<NoiseStream> SessionImpl::observer(const at::Tensor& tensor) {
  if (module_runs_again()) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!is_observed_) return nullptr;
  if (may_be_captured_ && tensor.is_cuda()) {
    may_be_captured_ = false;
    if (is_captured(tensor.device())) {
      is_observed_ = false;
      stream_.reset();
    }
  }
  return stream_;
}

/// Call it between two steps, so that no step mixes the bits of two plans.
bool SessionImpl::take_observation() {
  constexpr int kMostWaiting = 8;
  const std::lock_guard lock(mutex_);
  if (!stream_ || open_steps_ > 0) return false;
  if (stream_->has_failed()) {
    TORCH_WARN(
        "actzip: a step could not be observed, most likely because memory ran out; every site keeps its bits until one "
        "can");
    stream_.reset();
    session_.skip_observation();
    return false;
  }
  if (!stream_->has_passed()) {
    if (++waited_ > kMostWaiting) stream_.reset();  // backward was never run
    return false;
  }
  // After two steps the result is usually ready. If not, the device has two steps of work ahead of it while the host
  // waits.
  constexpr int kStepsUntilRead = 2;
  const auto observation = stream_->result(asked_++ >= kStepsUntilRead);
  if (!observation) return false;
  stream_.reset();
  return !observation->sites.empty() && session_.learn(*observation);
}

void SessionImpl::end_step() {
  samples->end_step();
  slices_.release_all();
  const std::lock_guard lock(mutex_);
  --open_steps_;
}

Report SessionImpl::report() const {
  Report report = session_.report();
  report.sample_statistics = samples->report();
  return report;
}

const std::string* SessionImpl::module_path(const std::string& path) {
  const std::lock_guard lock(mutex_);
  auto& place = module_paths_[path];
  if (!place) place = std::make_unique<std::string>(path);
  return place.get();
}

std::size_t SessionImpl::Hash::operator()(const SiteAddress& address) const noexcept {
  const auto module = reinterpret_cast<std::uintptr_t>(address.module);
  const auto op = reinterpret_cast<std::uintptr_t>(address.op);
  return ((module * 31 + op) * 31 + static_cast<std::size_t>(address.slot)) * 0x9E3779B97F4A7C15ULL >> 16U;
}

SiteGroup& SessionImpl::group_of(const Saver& saver, const std::string* module) {
  const SiteAddress address{module, saver.op, saver.slot.value};
  if (const auto known = groups_.find(address); known != groups_.end()) return known->second;
  SiteGroup group;
  group.slot = slot_name(*saver.op, saver.slot);
  group.use = saver.op->use_of(group.slot);
  group.weight_slot = holds_weight(group.use, group.slot);
  return groups_.emplace(address, std::move(group)).first->second;
}

SiteId SessionImpl::next_in(SiteGroup& group, const Saver& saver, const std::string* module) {
  if (group.step != step_) group.next = 0;
  group.step = step_;
  if (group.next == group.ids.size()) {
    const std::string_view path = module != nullptr ? std::string_view(*module) : std::string_view();
    guard_->note_new_site();
    group.ids.push_back(session_.site({path, saver.op->name, group.slot, static_cast<int>(group.next), group.use}));
  }
  return group.ids[group.next++];
}

/// Requires the mutex. After a step has left the sequence that it followed, the module is unknown, so the save may
/// belong to a loss.
SiteSequence::Save SessionImpl::next_save(const Saver& saver) {
  const SaveKey key{saver.op, saver.slot.value, saver.parameter};
  if (sequence_.follows()) {
    if (const auto* save = sequence_.follow(key)) return *save;
    sequence_.leave();
  }
  const bool is_left = sequence_.is_left();
  const std::string* module = is_left ? &kUnknownModule : current_module(*this);
  SiteGroup& group = group_of(saver, module);
  const SiteId id = next_in(group, saver, module);
  const SiteSequence::Save save{key, &group, id, is_left ? Where::outside : where_is(module)};
  sequence_.add(save);
  return save;
}

/// Requires the mutex. Detects a training loop that runs in one scope: by its next forward, everything kept was freed
/// again. That forward then uses the sites of the previous one; otherwise the number of sites would grow without end.
/// Returns whether to warn the user.
bool SessionImpl::note_pass() {
  constexpr int kPassesWorthAWord = 4;
  const bool holds = session_.live_bytes() > 0;
  if (holds || !has_held_ || open_steps_ != 1 || is_in_backward()) {
    has_held_ = has_held_ || holds;
    return false;
  }
  has_held_ = false;
  ++step_;
  return ++passes_ == kPassesWorthAWord;
}

SessionImpl::Place SessionImpl::place_of(const Saver& saver) {
  std::unique_lock lock(mutex_);
  if (note_pass()) {
    lock.unlock();
    TORCH_WARN(
        "actzip: forward and backward have run several times in one scope; enter it around each forward, since a scope "
        "is a step: its report sums them up, and nothing is learned before it ends");
    lock.lock();
  }
  const SiteSequence::Save save = next_save(saver);
  if (module_runs_again()) return {save.group, save.id};
  const bool is_model = saver.parameter != nullptr || save.group->use == Use::checkpoint_input;  // it hides parameters
  const bool is_in_loss = loss_sites_.add({save.id, save.group->use, save.where, is_model});
  return {save.group, save.id, is_in_loss};
}

Packed SessionImpl::pack(const at::Tensor& tensor) {
  Saver saver = current_saver(tensor, parameters);
  if (saver.op->is_counted) {
    if (saver.is_first) saver.frame->late = std::make_unique<CountedSaves>(shared_from_this());
    return static_cast<CountedSaves&>(*saver.frame->late).add(tensor, saver);
  }
  if (saver.is_first) {
    saver.frame->attention = AttentionCall::of(*saver.frame);
    saver.frame->recurrent = RecurrentCall::of(*saver.frame);
  }
  if (saver.frame != nullptr && saver.frame->recurrent) return pack_recurrent(saver.frame->recurrent, saver, tensor);
  const auto call = saver.frame != nullptr ? saver.frame->attention : nullptr;
  const auto part = call ? AttentionCall::part_of(saver.slot, tensor) : std::nullopt;
  saver.facts.recomputable = part && call->can_compute(*part);
  saver.facts.keeps_sums = !call && AttentionCall::is_attention(*saver.op);
  Packed packed = pack_for(saver, tensor);
  if (part) {
    call->note_kept(*part, packed);  // before `call_` is set, so that the call's copy does not hold the call itself
    packed.call_ = call;
    packed.part_ = *part;
  }
  return packed;
}

Packed SessionImpl::pack_for(const Saver& saver, const at::Tensor& tensor) {
  Packed packed = pack_at(place_of(saver), tensor, saver, {});
  if (packed.witness()) note_witness(packed.witness());
  if (const auto save = packed.tried()) {
    if (const auto stream = observer(tensor)) note_tried(*save, stream);
  }
  return packed;
}

SessionImpl::Place SessionImpl::place_in(const std::string* module, const Saver& saver) {
  const std::lock_guard lock(mutex_);
  SiteGroup& group = group_of(saver, module);
  const SiteId id = next_in(group, saver, module);
  loss_sites_.add({id, group.use, Where::inside, /*has_parameter=*/true});  // a layer belongs to no loss
  return {&group, id};
}

Packed SessionImpl::pack(const at::Tensor& tensor, const Saver& saver, const std::string* module,
                         const PackHelp& help) {
  return pack_at(place_in(module, saver), tensor, saver, help);
}

/// Returns a witness if the site should be checked in this step. A derived tensor is never checked: its bytes are those
/// of another tensor.
std::shared_ptr<Witness> SessionImpl::witness_of(SiteId site, Use use, const Kept& kept, const at::Tensor& tensor) {
  guard_->note_saved(tensor.nbytes());
  if (module_runs_again() || !is_lossy(kept) || kept.derived || session_.is_trial()) return nullptr;
  if (!session_.wants_look(site)) return nullptr;
  if (!session_.is_settled(site)) {
    guard_->postpone(site);
    return nullptr;
  }
  const Witness::About about{site, enters_linearly(use), !session_.was_looked_at(site)};
  return guard_->witness(about, tensor, [&](std::size_t bytes) { return session_.hold_beside(site, bytes); });
}

Packed SessionImpl::pack_at(const Place& place, const at::Tensor& tensor, const Saver& saver, const PackHelp& help) {
  const Packed* source = help.source;
  slices_.release_recent();
  const SavedTensor saved = describe(tensor, saver, place, help);
  Packed packed;
  packed.note_version(tensor);
  packed.site_ = place.id;
  if (saved.identity.address != 0) {
    const auto guard = guard_for(tensor.device());
    const ProfileRange range("encode", [&]() -> const std::string& { return session_.site_name(place.id); });
    packed.kept_ = session_.keep(place.id, saved, current_stream(tensor.device()), torch_memory(),
                                 source != nullptr ? &source->kept_ : nullptr);
    if (guard_->is_active() && !saver.op->runs_once) {
      packed.witness_ = witness_of(place.id, place.group->use, packed.kept_, tensor);
    }
  } else {
    packed.kept_ = session_.keep(place.id, saved, Stream(), torch_memory());
  }
  complete(packed, tensor, saved, *saver.op, source);
  return packed;
}

ReservedPack SessionImpl::reserve(const at::Tensor& tensor, const Saver& saver, const std::string* module) {
  const Place place = place_in(module, saver);
  slices_.release_recent();
  const SavedTensor saved = describe(tensor, saver, place, {});
  Packed packed;
  packed.note_version(tensor);
  packed.site_ = place.id;
  const bool has_memory = saved.identity.address != 0;
  const auto guard = has_memory ? guard_for(tensor.device()) : c10::OptionalDeviceGuard();
  const Stream stream = has_memory ? current_stream(tensor.device()) : Stream();
  return {session_.reserve(place.id, saved, stream, torch_memory()), tensor, saver.op, place.group->use,
          std::move(packed)};
}

/// Has no witness if the layer has encoded its input itself, since it then also reads the bytes itself.
Packed SessionImpl::pack(ReservedPack reserved, Written written) {
  auto& [room, tensor, op, use, packed] = reserved;
  const SavedTensor saved = room.tensor();
  const bool has_memory = saved.identity.address != 0;
  {
    const auto guard = has_memory ? guard_for(tensor.device()) : c10::OptionalDeviceGuard();
    std::optional<ProfileRange> range;
    if (written == Written::nothing)
      range.emplace("encode", [&]() -> const std::string& { return reserved.room.site(); });
    packed.kept_ = session_.keep(std::move(room), written);
  }
  if (has_memory && guard_->is_active() && !op->runs_once) {
    if (written == Written::nothing) {
      packed.witness_ = witness_of(packed.site_, use, packed.kept_, tensor);
    } else {
      guard_->note_saved(tensor.nbytes());
    }
  }
  complete(packed, tensor, saved, *op, /*source=*/nullptr);
  return std::move(packed);
}

/// Fills in what restoring the tensor needs.
void SessionImpl::complete(Packed& packed, const at::Tensor& tensor, const SavedTensor& saved, const OperatorInfo& op,
                           const Packed* source) {
  packed.is_input_ = saved.is_input;
  if (packed.kept_.has_segment_bits && !session_.is_trial()) samples->watch(tensor);
  if (packed.kept_.how == Keep::as_is) {
    if (saved.role == Role::activation && !is_dry_ && KeptSlices::is_slice(tensor)) {
      packed.slice_ = slices_.add(tensor);
      return;
    }
    // Without a graph, because a result would hold its own node; and for an input in a tensor of our own, so that
    // note_holder() can count other holders.
    packed.as_is_ = tensor.grad_fn() || saved.is_input ? tensor.tensor_data() : tensor;
    return;
  }
  if (saved.is_input) packed.input_ = tensor.storage().getWeakStorageImpl();
  const Shape dense = compact(saved.view.shape);
  packed.shape_ = packed.is_derived() ? source->shape_ : tensor.is_complex() ? without_pairs(dense) : dense;
  packed.is_conjugated_ = tensor.is_conj();
  if (const Shape own = to_shape(tensor); runs_unknown_code(op) && packed.shape_.strides != own.strides) {
    packed.gapped_ = std::make_shared<const Shape>(own);
  }
  packed.type_ = packed.is_derived() ? source->type_ : tensor.scalar_type();
  packed.device_ = tensor.device();
  record_on_current_stream(tensor.storage());
}

}  // namespace actzip::torch
