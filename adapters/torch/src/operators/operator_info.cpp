#include "operators/operator_info.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "operators/function_table.hpp"

namespace actzip::torch {

namespace {

constexpr std::string_view kTorch = "aten::";
constexpr std::string_view kFunction = "Function::";
constexpr std::size_t kLastBit = 31;

std::string name_of(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return name.starts_with(kTorch) ? name.substr(kTorch.size()) : name;
}

OperatorInfo info_of(const c10::OperatorHandle& op) {
  OperatorInfo info{name_of(op)};
  info.handle = op;
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    info.arguments.push_back(arguments[i].name());
    const auto* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite()) info.written |= 1U << std::min(i, kLastBit);
  }
  return info;
}

/// Returns the operator that owns the text `name`; nothing for a function, whatever its name.
std::optional<c10::OperatorHandle> operator_at(const char* name, const char* overload) {
  auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  return op && op->schema().name().c_str() == name ? op : std::nullopt;
}

std::atomic<FunctionNamer> g_function_namer{nullptr};
std::atomic<CheckpointFinder> g_checkpoint_finder{nullptr};

/// The functions by which checkpoints save their arguments: reentrant ones, and others before torch 2.13.
constexpr std::array kCheckpoints = {"Function::torch.utils.checkpoint.CheckpointFunction",
                                     "Function::torch.utils.checkpoint._NoopSaveInputs"};

constexpr OperatorRow kCheckpoint{.names = {}, .slots = {{{"*", Use::checkpoint_input}}}};

/// Two functions may have the same name; their modules distinguish them.
std::string function_name(const char* name) {
  const FunctionNamer namer = g_function_namer.load(std::memory_order_acquire);
  const std::string full = namer != nullptr ? namer(name) : std::string();
  return std::string(kFunction) + (full.empty() ? name : full);
}

/// All operators and functions that were ever seen.
class OperatorTable {
 public:
  const OperatorInfo& find(const char* name, const char* overload) {
    const auto op = operator_at(name, overload);
    const std::string key = op ? std::string(name) + '.' + overload : function_name(name);
    if (!op && is_checkpoint(key)) return checkpoint_operator();
    const std::lock_guard lock(mutex_);
    auto& info = infos_[key];
    if (!info) {
      info = std::make_unique<OperatorInfo>(op ? info_of(*op) : OperatorInfo{key});
      info->is_opaque = !op;
      info->is_torch = op && std::string_view(name).starts_with(kTorch);
      info->is_counted = !op && is_known_function(std::string_view(key).substr(kFunction.size()));
    }
    return *info;
  }

  const OperatorInfo& find(const OperatorInfo& info, const FunctionRow& function) {
    const std::lock_guard lock(mutex_);
    auto& own = counted_[&function];
    if (!own) {
      own = std::make_unique<OperatorInfo>(info);
      own->row = &function.row;
      own->runs_once = function.runs_once;
      for (const std::string_view save : words_of(function.saves)) own->arguments.emplace_back(save);
    }
    return *own;
  }

  bool has(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(infos_, [&](const auto& entry) { return entry.second && entry.second->name == name; });
  }

  const OperatorInfo& find(const char* prefix, const OperatorInfo& info) {
    const std::lock_guard lock(mutex_);
    auto& own = prefixed_[{prefix, &info}];
    if (!own) {
      own = std::make_unique<OperatorInfo>(info);
      own->name.insert(0, prefix);
      own->row = find_operator(own->name);
    }
    return *own;
  }

 private:
  using Prefixed = std::pair<const char*, const OperatorInfo*>;
  struct Hash {
    std::size_t operator()(const Prefixed& key) const noexcept {
      return std::hash<const void*>()(key.first) ^ (std::hash<const void*>()(key.second) << 1U);
    }
  };
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<OperatorInfo>> infos_;
  std::unordered_map<Prefixed, std::unique_ptr<OperatorInfo>, Hash> prefixed_;
  std::unordered_map<const FunctionRow*, std::unique_ptr<OperatorInfo>> counted_;
};

OperatorTable& table() {
  static auto* table = new OperatorTable;
  return *table;
}

/// An operator that this thread has met. A library that is unloaded frees its names, so the text is compared too.
struct Met {
  std::string name;
  std::string overload;
  const OperatorInfo* info = nullptr;
};

}  // namespace

const OperatorInfo& operator_info(const char* name, const char* overload) {
  thread_local std::unordered_map<const char*, Met> met;
  const auto known = met.find(name);
  if (known != met.end() && known->second.name == name && known->second.overload == overload) {
    return *known->second.info;
  }
  const OperatorInfo& info = table().find(name, overload);
  // The memory of a function's name may be reused for other names.
  if (!info.is_opaque) met[name] = {name, overload, &info};
  return info;
}

void set_function_namer(FunctionNamer namer) { g_function_namer.store(namer, std::memory_order_release); }

const OperatorInfo& prefixed(const char* prefix, const OperatorInfo& info) { return table().find(prefix, info); }

const OperatorInfo* counted(const OperatorInfo& info, const std::vector<bool>& is_result) {
  const auto name = std::string_view(info.name).substr(kFunction.size());
  const FunctionRow* const function = find_function(name, is_result);
  return function != nullptr ? &table().find(info, *function) : nullptr;
}

bool is_checkpoint(std::string_view name) { return std::ranges::find(kCheckpoints, name) != kCheckpoints.end(); }

void set_checkpoint_finder(CheckpointFinder find) { g_checkpoint_finder.store(find, std::memory_order_release); }

bool is_checkpoint_saving() {
  const CheckpointFinder find = g_checkpoint_finder.load(std::memory_order_acquire);
  return find != nullptr && find();
}

/// It runs its function, which may do anything. Its node must not run again: that would add to gradients twice.
const OperatorInfo& checkpoint_operator() {
  static const auto* info = new OperatorInfo{.name = "checkpoint",
                                             .arguments = {"input"},
                                             .is_opaque = true,
                                             .runs_once = true,
                                             .is_torch = false,
                                             .row = &kCheckpoint};
  return *info;
}

bool was_met(const std::string& name) { return table().has(name); }

const OperatorInfo& cast_operator() {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_to_copy", "");
  return operator_info(op.schema().name().c_str(), op.schema().overload_name().c_str());
}

const OperatorInfo& unknown_operator() {
  static const auto* info = new OperatorInfo{"unknown"};
  return *info;
}

}  // namespace actzip::torch
