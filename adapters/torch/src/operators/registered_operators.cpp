#include "operators/registered_operators.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "actzip/error.hpp"
#include "operators/operator_info.hpp"

namespace actzip::torch {

namespace {

/// These uses need limits, factors, bounds, or a call that can run again, which a registration cannot give.
constexpr std::array kNeedFacts = {Use::unknown,    Use::foreign, Use::interval,         Use::dropout_mask,
                                   Use::pool_index, Use::index,   Use::attention_result, Use::attention_statistics};

bool can_be_told(Use use) { return std::ranges::find(kNeedFacts, use) == kNeedFacts.end(); }

std::string allowed_uses() {
  std::string names;
  for (const Use use : all_uses()) {
    if (can_be_told(use)) names += (names.empty() ? "" : ", ") + std::string(to_string(use));
  }
  return names;
}

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::invalid_spec, "register: " + what); }

/// A row, with the texts that it refers to.
struct Registered {
  std::string name;
  std::vector<SlotOfUse> slots;
  OperatorRow row;
};

std::unique_ptr<Registered> registered(const std::string& name, const std::vector<SlotOfUse>& slots) {
  auto made = std::make_unique<Registered>();
  if (slots.empty() || slots.size() > made->row.slots.size()) {
    refuse(name + " with " + std::to_string(slots.size()) + " slots (allowed: 1 to " +
           std::to_string(made->row.slots.size()) + ")");
  }
  made->name = name;
  made->slots = slots;
  made->row.names = made->name;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto& [slot, text] = made->slots[i];
    const std::optional<Use> use = parse_use(text);
    if (!use || !can_be_told(*use)) refuse(name + "." + slot + " as '" + text + "' (allowed: " + allowed_uses() + ")");
    made->row.slots[i] = {slot, *use};
  }
  return made;
}

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Registered>, std::less<>> rows;  ///< never erased: OperatorInfos refer to it
};

Registry& registry() {
  static auto* const registry = new Registry;  // never destroyed, because operators are not
  return *registry;
}

}  // namespace

void register_operator(const std::string& name, const std::vector<SlotOfUse>& slots) {
  auto made = registered(name, slots);
  if (is_checkpoint(name)) refuse(name + " cannot be registered (allowed: a rule for checkpoint.input)");
  if (find_known(name) != nullptr) refuse(name + " is in actzip's own table (allowed: rules of a session)");
  const bool is_late = was_met(name);  // before the lock: a lookup takes these two locks in that order
  const std::lock_guard lock(registry().mutex);
  if (const auto known = registry().rows.find(name); known != registry().rows.end()) {
    if (known->second->slots == slots) return;
    refuse(name + " was registered with other uses");
  }
  if (is_late) refuse(name + " has run in a scope already (allowed: before the first)");
  registry().rows.emplace(name, std::move(made));
}

const OperatorRow* find_registered(std::string_view name) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().rows.find(name);
  return found == registry().rows.end() ? nullptr : &found->second->row;
}

}  // namespace actzip::torch
